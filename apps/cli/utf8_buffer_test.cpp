#include "utf8_buffer.h"

#include <gtest/gtest.h>

namespace kedge::cli {
namespace {

const std::string kText = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z";  // 1, 2, 3, 4 and 1 bytes

TEST(Utf8Buffer, AnySplitGivesTheSameText) {
  for (size_t i = 0; i <= kText.size(); ++i) {
    for (size_t j = i; j <= kText.size(); ++j) {
      Utf8Buffer buffer;
      std::string out = buffer.push(kText.substr(0, i));
      out += buffer.push(kText.substr(i, j - i));
      out += buffer.push(kText.substr(j));
      EXPECT_EQ(out, kText) << i << " " << j;
      EXPECT_EQ(buffer.flush(), "");
    }
  }
}

TEST(Utf8Buffer, HoldsUnfinishedCharacters) {
  Utf8Buffer buffer;
  EXPECT_EQ(buffer.push("x\xF0\x9F"), "x");
  EXPECT_EQ(buffer.push("\x98"), "");
  EXPECT_EQ(buffer.push("\x80y"), "\xF0\x9F\x98\x80y");
}

TEST(Utf8Buffer, UnfinishedAtTheEnd) {
  Utf8Buffer buffer;
  EXPECT_EQ(buffer.push("\xE2\x82"), "");
  EXPECT_EQ(buffer.flush(), "\xEF\xBF\xBD");
  EXPECT_EQ(buffer.flush(), "");
}

TEST(Utf8Buffer, InvalidBytesBecomeReplacements) {
  const auto all = [](const std::string& bytes) {
    Utf8Buffer buffer;
    return buffer.push(bytes) + buffer.flush();
  };
  EXPECT_EQ(all("\xFF"), "\xEF\xBF\xBD");
  EXPECT_EQ(all("a\x80z"), "a\xEF\xBF\xBDz");
  EXPECT_EQ(all("\xC3(x"), "\xEF\xBF\xBD(x");
  EXPECT_EQ(all("\xC0\xAF"), "\xEF\xBF\xBD\xEF\xBF\xBD");                  // overlong
  EXPECT_EQ(all("\xED\xA0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");  // a surrogate
  EXPECT_EQ(all("\xE2\x82\xE2\x82\xAC"), "\xEF\xBF\xBD\xE2\x82\xAC");
}

}  // namespace
}  // namespace kedge::cli
