#include "eval/text_tokens.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

namespace kedge::eval {
namespace {

Tokenizer bytes_as_tokens() {
  return {.tokenize = [](std::string_view text) { return std::vector<Token>(text.begin(), text.end()); },
          .detokenize = [](std::span<const Token> tokens) { return std::string(tokens.begin(), tokens.end()); }};
}

class TextTokensTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("kedge-text-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
    for (int i = 0; i < 500; ++i)
      text_ += "line " + std::to_string(i * i) + " ends\n";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string file(const std::string& name, const std::string& content) {
    const std::string path = folder_ / name;
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }

  std::filesystem::path folder_;
  std::string text_;
};

TEST_F(TextTokensTest, AnyWindowOfAnyPieceSize) {
  const std::string path = file("a.txt", text_);
  for (const size_t piece : {size_t{7}, size_t{100}, size_t{1000}, TextTokens::kPieceBytes}) {
    const auto text = TextTokens::open(path, bytes_as_tokens(), piece);
    ASSERT_TRUE(text.ok()) << text.error().message;
    ASSERT_EQ((*text)->n_tokens(), static_cast<int64_t>(text_.size())) << piece;
    for (const int64_t begin : {int64_t{0}, int64_t{99}, int64_t{100}, int64_t{3210}, int64_t{5}}) {
      const auto slice = (*text)->slice(begin, 333);
      ASSERT_TRUE(slice.ok());
      EXPECT_EQ(std::string(slice->begin(), slice->end()), text_.substr(static_cast<size_t>(begin), 333)) << piece;
    }
  }
}

TEST_F(TextTokensTest, PiecesEndWithLinesOrCharacters) {
  std::vector<std::string> pieces;
  Tokenizer watch = bytes_as_tokens();
  watch.tokenize = [&pieces](std::string_view text) {
    pieces.emplace_back(text);
    return std::vector<Token>(text.begin(), text.end());
  };
  ASSERT_TRUE(TextTokens::open(file("b.txt", "ab\ncd\nefghijkl\xC3\xA9\xC3\xA9z"), watch, 8).ok());
  EXPECT_EQ(pieces, (std::vector<std::string>{"ab\ncd\n", "efghijk", "l\xC3\xA9\xC3\xA9z"}));
}

TEST_F(TextTokensTest, ReadsGzipAndEmptyAndSaysWhatIsMissing) {
  const std::string path = folder_ / "c.gz";
  gzFile out = ::gzopen(path.c_str(), "wb");
  ::gzwrite(out, text_.data(), static_cast<unsigned>(text_.size()));
  ::gzclose(out);
  const auto text = TextTokens::open(path, bytes_as_tokens(), 300);
  ASSERT_TRUE(text.ok());
  const auto late = (*text)->slice(4000, 50);
  const auto early = (*text)->slice(10, 50);
  EXPECT_EQ(std::string(late->begin(), late->end()), text_.substr(4000, 50));
  EXPECT_EQ(std::string(early->begin(), early->end()), text_.substr(10, 50));
  const auto empty = TextTokens::open(file("d.txt", ""), bytes_as_tokens());
  ASSERT_TRUE(empty.ok());
  EXPECT_EQ((*empty)->n_tokens(), 0);
  const auto none = TextTokens::open(folder_ / "none.txt", bytes_as_tokens());
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.error().message.find("none.txt"), std::string::npos);
}

TEST_F(TextTokensTest, AFileThatChangedIsNoticed) {
  const std::string path = file("e.txt", text_);
  const auto text = TextTokens::open(path, bytes_as_tokens(), 300);
  ASSERT_TRUE(text.ok());
  std::filesystem::resize_file(path, 100);
  EXPECT_FALSE((*text)->slice(4000, 50).ok());
}

}  // namespace
}  // namespace kedge::eval
