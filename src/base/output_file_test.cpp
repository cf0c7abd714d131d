#include "base/output_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

namespace kedge {
namespace {

namespace fs = std::filesystem;

class OutputFile : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / "kedge_output_file_test";
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const char* name) const { return (folder_ / name).string(); }
  static std::string content(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  size_t n_files() const { return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), {})); }

  fs::path folder_;
};

TEST_F(OutputFile, WritesAndReplaces) {
  ASSERT_TRUE(write_file(path("a"), "one").ok());
  ASSERT_TRUE(write_file(path("a"), "two").ok());
  EXPECT_EQ(content(path("a")), "two");
  EXPECT_EQ(n_files(), 1U);
}

TEST_F(OutputFile, CheckLeavesNothing) {
  EXPECT_TRUE(check_writable(path("a")).ok());
  EXPECT_TRUE(check_writable("").ok());
  EXPECT_EQ(n_files(), 0U);
  ASSERT_TRUE(write_file(path("a"), "one").ok());
  EXPECT_TRUE(check_writable(path("a")).ok());
  EXPECT_EQ(content(path("a")), "one");
}

TEST_F(OutputFile, ImpossiblePlacesAreNamed) {
  const std::string nowhere = path("no/such/folder");
  for (const Status& status : {check_writable(nowhere), write_file(nowhere, "x"), check_writable(folder_.string())}) {
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::failed);
    EXPECT_NE(status.error().message.find(folder_.string()), std::string::npos);
  }
}

TEST_F(OutputFile, ALinkStaysALink) {
  ASSERT_TRUE(write_file(path("target"), "old").ok());
  fs::create_symlink(path("target"), path("link"));
  ASSERT_TRUE(write_file(path("link"), "new").ok());
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(content(path("target")), "new");
}

TEST_F(OutputFile, DevicesAreWrittenInPlace) {
  EXPECT_TRUE(check_writable("/dev/null").ok());
  EXPECT_TRUE(write_file("/dev/null", "x").ok());
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_FALSE(write_file("/dev/full", "x").ok());
}

}  // namespace
}  // namespace kedge
