#include "session/protection/phrase_matcher.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "session/protection/utf8.h"

namespace kedge::session {
namespace {

using Tokens = std::set<int32_t>;

void add(const std::vector<TokenRun>& runs, Tokens& out) {
  for (const TokenRun& run : runs) {
    for (int32_t t = run.first; t <= run.last; ++t)
      out.insert(t);
  }
}

// Tokens that certainly match, and with `open` those that may yet.
Tokens found(const std::vector<Phrase>& phrases, const std::vector<std::string>& pieces, bool open = false) {
  const PhraseMatcher matcher(phrases);
  PhraseScan scan(matcher);
  std::vector<TokenRun> runs;
  for (size_t i = 0; i < pieces.size(); ++i)
    scan.read(pieces[i], static_cast<int32_t>(i), runs);
  if (open)
    scan.append_open(runs);
  Tokens out;
  add(runs, out);
  return out;
}

TEST(PhraseMatcher, APhraseCrossesTokensAndTakesAllOfThem) {
  const std::vector<std::string> pieces = {"The", " pro", "ject", " Blue", "b", "ird", " is", " secret."};
  EXPECT_EQ(found({{.text = "Project Bluebird"}}, pieces), (Tokens{1, 2, 3, 4, 5}));
  EXPECT_EQ(found({{.text = "bluebird"}}, pieces), (Tokens{3, 4, 5}));
  EXPECT_EQ(found({{.text = "secret"}}, pieces), (Tokens{7}));
}

TEST(PhraseMatcher, WordsMatchAsWholeWordsOnly) {
  EXPECT_EQ(found({{.text = "art"}}, {"start", " art", " artist", " p", "art", " ", "art", "ful", " art."}),
            (Tokens{1, 8}));
  EXPECT_EQ(found({{.text = "x_1"}}, {"x_1", "2 ", "ax_1 ", "x_1 "}), (Tokens{3}));
  EXPECT_EQ(found({{.text = "C++"}}, {"C", "++", "11 C", "++;"}), (Tokens{0, 1, 2, 3})) << "only ends that are letters";
  EXPECT_EQ(found({{.text = "->"}}, {"a", "-", ">", "b"}), (Tokens{1, 2}));
}

TEST(PhraseMatcher, LettersOfOtherScriptsBoundWordsButEastAsianOnesDoNot) {
  EXPECT_EQ(found({{.text = "caf"}}, {"caf", "\xC3\xA9 ", "caf", "!"}), (Tokens{2}));
  EXPECT_EQ(found({{.text = "\xD1\x80\xD0\xB8\xD0\xBC"}},
                  {"\xD0\xBA\xD1\x80\xD0\xB8\xD0\xBC ", "\xD1\x80\xD0\xB8\xD0\xBC ", "x"}),
            (Tokens{1}));
  const std::string tokyo = "\xE6\x9D\xB1\xE4\xBA\xAC";
  EXPECT_EQ(found({{.text = tokyo}}, {"\xE7\xA7\x81", tokyo, "\xE3\x81\xA7"}), (Tokens{1}));
  // A character that is split over two tokens.
  EXPECT_EQ(found({{.text = "na\xC3\xAFve"}}, {"a ", "na\xC3", "\xAFve", " b"}), (Tokens{1, 2}));
}

TEST(PhraseMatcher, RunsOfWhiteSpaceAreEqual) {
  const std::vector<Phrase> phrases = {{.text = "due  date\tis"}};
  EXPECT_EQ(found(phrases, {"due", " ", "\n", "  ", "date", "\r\n", "is", "."}), (Tokens{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(found(phrases, {"duedate is."}), Tokens{});
}

TEST(PhraseMatcher, CaseCountsWhereAsked) {
  const std::vector<std::string> pieces = {"apple", " Apple", " APPLE", " "};
  EXPECT_EQ(found({{.text = "Apple"}}, pieces), (Tokens{0, 1, 2}));
  EXPECT_EQ(found({{.text = "Apple", .match_case = true}}, pieces), (Tokens{1}));
  EXPECT_EQ(found({{.text = "APPLE", .match_case = true}, {.text = "apple", .match_case = true}}, pieces),
            (Tokens{0, 2}));
}

TEST(PhraseMatcher, PhrasesWithinAndAcrossPhrasesAreAllFound) {
  const std::vector<Phrase> phrases = {{.text = "a b c d"}, {.text = "b c"}, {.text = "c d e"}, {.text = "c"}};
  EXPECT_EQ(found(phrases, {"x ", "b ", "c ", "y ", "a ", "b ", "c ", "d ", "e ", "z"}), (Tokens{1, 2, 4, 5, 6, 7, 8}));
}

TEST(PhraseMatcher, LineStartsAreKnownWhateverTheIndentation) {
  const std::vector<Phrase> phrases = {{.text = "User:", .at_line_start = true}};
  EXPECT_EQ(found(phrases, {"User:", " a User: ", "b\n", "  ", "User:", " \n", "x User:"}), (Tokens{0, 4}));
}

TEST(PhraseMatcher, WhatMayStillBecomeAMatchIsOpen) {
  const std::vector<Phrase> phrases = {{.text = "alpha beta gamma"}};
  EXPECT_EQ(found(phrases, {"x", " alpha", " be"}), Tokens{});
  EXPECT_EQ(found(phrases, {"x", " alpha", " be"}, true), (Tokens{1, 2}));
  EXPECT_EQ(found(phrases, {"x", " alpha", " bee"}, true), Tokens{});
  EXPECT_EQ(found(phrases, {"alphalpha", " b"}, true), Tokens{}) << "begins inside a word";
  EXPECT_EQ(found(phrases, {"alpha beta gamma"}, true), (Tokens{0})) << "the text may end here";
  EXPECT_EQ(found(phrases, {"alpha beta gamma"}), Tokens{}) << "or go on with 'gammas'";
  EXPECT_EQ(found(phrases, {"alpha beta gamma", "s"}, true), Tokens{});
  EXPECT_EQ(found({{.text = "alpha beta", .owner = 1}}, {"alpha "}, true), Tokens{}) << "only keywords";
}

// The plain version: every phrase at every place of the evened text.
Tokens plain(const std::vector<Phrase>& phrases, const std::vector<std::string>& pieces) {
  std::string text;
  std::vector<std::set<int32_t>> owners;  // tokens of each character of `text`
  for (size_t t = 0; t < pieces.size(); ++t) {
    for (const char c : pieces[t]) {
      if (is_blank(c) && !text.empty() && text.back() == ' ') {
        owners.back().insert(static_cast<int32_t>(t));
        continue;
      }
      text += is_blank(c) ? ' ' : c;
      owners.push_back({static_cast<int32_t>(t)});
    }
  }
  const auto lower = [](std::string s) {
    for (char& c : s)
      c = folded(c);
    return s;
  };
  Tokens out;
  for (const Phrase& phrase : phrases) {
    const std::string needle = phrase.match_case ? phrase.text : lower(phrase.text);
    const std::string hay = phrase.match_case ? text : lower(text);
    for (size_t at = hay.find(needle); at != std::string::npos; at = hay.find(needle, at + 1)) {
      const size_t end = at + needle.size();
      const bool inside = at > 0 && starts_word_character(hay[at - 1]) && starts_word_character(needle.front());
      const bool goes_on = end < hay.size() && starts_word_character(hay[end]) && starts_word_character(needle.back());
      if (inside || goes_on || (end == hay.size() && starts_word_character(needle.back())))
        continue;
      for (int32_t t = *owners[at].begin(); t <= *owners[end - 1].begin(); ++t)
        out.insert(t);
    }
  }
  return out;
}

TEST(PhraseMatcher, AgreesWithThePlainSearchOnRandomTexts) {
  std::mt19937 random(7);
  const std::string letters = "aabbcA B_\n .";
  const auto word = [&](size_t n) {
    std::string out;
    while (out.size() < n)
      out += letters[random() % letters.size()];
    return out;
  };
  int n_found = 0;
  for (int round = 0; round < 400; ++round) {
    std::vector<Phrase> phrases;
    for (size_t i = 0; i < 1 + random() % 12; ++i) {
      std::string text;
      for (const char c : word(1 + random() % 6)) {
        if (!is_blank(c) || (!text.empty() && text.back() != ' '))
          text += is_blank(c) ? ' ' : c;
      }
      while (!text.empty() && text.back() == ' ')
        text.pop_back();
      if (!text.empty())
        phrases.push_back({.text = text, .match_case = random() % 2 == 0});
    }
    std::vector<std::string> pieces;
    for (size_t i = 0; i < 60; ++i)
      pieces.push_back(word(random() % 4));
    const Tokens expected = plain(phrases, pieces);
    EXPECT_EQ(found(phrases, pieces), expected) << "round " << round;
    n_found += static_cast<int>(expected.size());
  }
  EXPECT_GT(n_found, 500);
}

TEST(PhraseMatcher, AMillionTokensAndAThousandPhrasesTakeLinearTime) {
  std::mt19937 random(1);
  std::vector<Phrase> phrases;
  for (int i = 0; i < 1000; ++i) {
    std::string text = "key";
    for (int j = 0; j < 12; ++j)
      text += static_cast<char>('a' + random() % 26);
    phrases.push_back({.text = text + " phrase"});
  }
  const PhraseMatcher matcher(phrases);
  PhraseScan scan(matcher);
  std::vector<TokenRun> runs;
  for (int32_t i = 0; i < 1000000; ++i)
    scan.read(i % 1000 == 0 ? " " + phrases[static_cast<size_t>(i / 1000)].text + " " : " word", i, runs);
  EXPECT_EQ(runs.size(), 1000U);
}

}  // namespace
}  // namespace kedge::session
