#include "session/protection/phrase_list.h"

#include <gtest/gtest.h>

namespace kedge::session {
namespace {

std::string refusal(std::string_view text) {
  const Result<std::vector<ProtectedPhrase>> list = parse_phrase_list(text, "words.txt");
  if (list.ok())
    return "accepted";
  EXPECT_EQ(list.error().code, ErrorCode::usage);
  EXPECT_EQ(list.error().message.find('\n'), std::string::npos);
  return list.error().message;
}

TEST(PhraseList, LinesCommentsCaseAndWhiteSpace) {
  const auto list = parse_phrase_list(
      "\xEF\xBB\xBF# names\r\n\r\n  Project Bluebird \r\ncase: NASA\n   # more\n\\#42\ncase:\\#A\n\nlast one", "f");
  ASSERT_TRUE(list.ok()) << list.error().message;
  ASSERT_EQ(list->size(), 5U);
  EXPECT_EQ(list->at(0).text, "Project Bluebird");
  EXPECT_FALSE(list->at(0).match_case);
  EXPECT_EQ(list->at(1).text, "NASA");
  EXPECT_TRUE(list->at(1).match_case);
  EXPECT_EQ(list->at(2).text, "#42");
  EXPECT_EQ(list->at(3).text, "#A");
  EXPECT_TRUE(list->at(3).match_case);
  EXPECT_EQ(list->at(4).text, "last one");
}

TEST(PhraseList, FaultsNameTheFileTheLineAndWhatWasFound) {
  EXPECT_EQ(refusal(""), "words.txt: found no phrase; one word or phrase a line is needed");
  EXPECT_EQ(refusal("# only\n\n  \n"), "words.txt: found no phrase; one word or phrase a line is needed");
  EXPECT_EQ(refusal("good\ncase:   \n"), "words.txt, line 2: found no phrase");
  EXPECT_EQ(refusal("good\n\n" + std::string(1001, 'x')), "words.txt, line 3: found 1001 bytes, allowed are 1000");
  EXPECT_EQ(refusal("good\nab\xFF"
                    "c\n"),
            "words.txt, line 2: found byte 255 in column 3, which is not UTF-8");
  EXPECT_EQ(refusal("\xED\xA0\x80"), "words.txt, line 1: found byte 237 in column 1, which is not UTF-8");
  EXPECT_EQ(refusal("caf\xC3"), "words.txt, line 1: found byte 195 in column 4, which is not UTF-8");
  EXPECT_EQ(refusal(std::string_view("a\0b", 3)), "words.txt, line 1: found the control character 0, allowed is text");
}

TEST(PhraseList, TenThousandPhrasesAreTheMost) {
  std::string text;
  for (int i = 0; i < 10000; ++i)
    text += "phrase number " + std::to_string(i) + "\n";
  const auto list = parse_phrase_list(text, "f");
  ASSERT_TRUE(list.ok());
  EXPECT_EQ(list->size(), 10000U);
  EXPECT_EQ(refusal(text + "# comment\none more\n"),
            "words.txt, line 10002: found more than 10000 phrases, which is the most that is allowed");
}

TEST(PhraseList, PhrasesFromElsewhereAreHeldToTheSame) {
  EXPECT_TRUE(check_phrases({{.text = " fine "}}).ok());
  EXPECT_EQ(check_phrases({{.text = "fine"}, {.text = "  "}}).error().message, "protected phrase 2: found no phrase");
  EXPECT_FALSE(check_phrases({{.text = "\x80"}}).ok());
  EXPECT_FALSE(check_phrases(std::vector<ProtectedPhrase>(10001, {.text = "x"})).ok());
}

}  // namespace
}  // namespace kedge::session
