#include "eval/journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace kedge::eval {
namespace {

using ::testing::HasSubstr;

class JournalTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("kedge-journal-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path() const { return folder_ / "journal.jsonl"; }
  void put(const std::string& bytes) const { std::ofstream(path(), std::ios::binary) << bytes; }
  std::string bytes() const {
    std::ifstream file(path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::filesystem::path folder_;
};

TEST_F(JournalTest, GoesOnWhereItWas) {
  std::vector<Json> lines;
  {
    const auto journal = Journal::open(folder_, lines);
    ASSERT_TRUE(journal.ok()) << journal.error().message;
    EXPECT_TRUE(lines.empty());
    ASSERT_TRUE((*journal)->append({{"a", 1}}).ok());
    ASSERT_TRUE((*journal)->append({{"text", "line\nbreak \xFF"}}).ok());
  }
  const auto again = Journal::open(folder_, lines);
  ASSERT_TRUE(again.ok());
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0].at("a"), 1);
  EXPECT_EQ(lines[1].at("text"), "line\nbreak \xEF\xBF\xBD");
}

TEST_F(JournalTest, EveryTornEndIsCutOff) {
  const std::string whole = "{\"a\":1}\n{\"b\":2}\n";
  const std::string last = "{\"c\":[3,4]}\n";
  for (size_t cut = 0; cut < last.size(); ++cut) {
    put(whole + last.substr(0, cut));
    std::vector<Json> lines;
    {
      const auto journal = Journal::open(folder_, lines);
      ASSERT_TRUE(journal.ok()) << cut;
      EXPECT_EQ(lines.size(), 2U) << cut;
      ASSERT_TRUE((*journal)->append({{"d", 5}}).ok());
    }
    EXPECT_EQ(bytes(), whole + "{\"d\":5}\n") << cut;
  }
}

TEST_F(JournalTest, ADamagedLineInTheMiddleIsNamed) {
  put("{\"a\":1}\n{\"b\":\n{\"c\":3}\n");
  std::vector<Json> lines;
  const auto journal = Journal::open(folder_, lines);
  ASSERT_FALSE(journal.ok());
  EXPECT_THAT(journal.error().message, HasSubstr("line 2"));
  EXPECT_EQ(bytes(), "{\"a\":1}\n{\"b\":\n{\"c\":3}\n");
  put("[1]\n");
  EXPECT_FALSE(Journal::open(folder_, lines).ok());
}

TEST_F(JournalTest, OneWriterAtATime) {
  std::vector<Json> lines;
  const auto first = Journal::open(folder_, lines);
  ASSERT_TRUE(first.ok());
  const auto second = Journal::open(folder_, lines);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::in_use);
}

}  // namespace
}  // namespace kedge::eval
