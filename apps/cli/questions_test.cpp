#include "questions.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

namespace kedge::cli {
namespace {

TEST(Questions, ComeFromFlagsAndThenFromLines) {
  const std::string path = testing::TempDir() + "kedge-questions.txt";
  std::ofstream(path) << "first\r\n\n   \nsecond, with spaces  \nlast";
  Settings settings;
  settings.questions = {"[a,b]", "again"};
  settings.questions_file = path;
  EXPECT_TRUE(asks_questions(settings));
  const Result<std::vector<std::string>> all = read_questions(settings);
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(*all, (std::vector<std::string>{"[a,b]", "again", "first", "second, with spaces  ", "last"}));
  std::ofstream(path, std::ios::trunc) << "\n  \n";
  settings.questions.clear();
  const Result<std::vector<std::string>> none = read_questions(settings);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, ErrorCode::usage);
  EXPECT_NE(none.error().message.find(path), std::string::npos);
  std::remove(path.c_str());
  EXPECT_FALSE(asks_questions(Settings{}));
}

TEST(Questions, ATemplateIsCutWhereTheTextEnds) {
  const Result<SplitPrompt> parts = split_rendered("<user>A text.\n\nWhy?</user><assistant>", "A text.");
  ASSERT_TRUE(parts.ok());
  EXPECT_EQ(parts->context, "<user>A text.");
  EXPECT_EQ(parts->question, "\n\nWhy?</user><assistant>");
  // Blanks at the message's start are gone from many templates.
  const Result<SplitPrompt> trimmed = split_rendered("<user>A text.\n\n\nWhy?</user>", " \nA text.\n");
  ASSERT_TRUE(trimmed.ok());
  EXPECT_EQ(trimmed->context, "<user>A text.\n");
  EXPECT_FALSE(split_rendered("<user>a text. Why?</user>", "A text.").ok());
}

}  // namespace
}  // namespace kedge::cli
