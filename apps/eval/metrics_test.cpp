#include "eval/metrics.h"

#include <gtest/gtest.h>

#include <chrono>

namespace kedge::eval {
namespace {

double score(std::string_view metric, std::string_view prediction, const std::vector<std::string>& answers) {
  const MetricInfo* info = find_metric(metric);
  EXPECT_NE(info, nullptr) << metric;
  return info == nullptr ? -1 : info->score(prediction, answers);
}

TEST(Metrics, ListAndNames) {
  std::vector<std::string> names;
  for (const MetricInfo& info : metrics()) {
    names.emplace_back(info.name);
    EXPECT_FALSE(info.summary.empty()) << info.name;
    EXPECT_EQ(find_metric(info.name), &info);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"exact", "contains", "contains_all", "f1", "rouge_l", "edit"}));
  EXPECT_EQ(find_metric("bleu"), nullptr);
}

TEST(Metrics, NoAnswersScoreNothingAndEveryMetricKnowsTheRightAnswer) {
  for (const MetricInfo& info : metrics()) {
    EXPECT_EQ(info.score("anything", {}), 0) << info.name;
    EXPECT_EQ(info.score("", {}), 0) << info.name;
    EXPECT_EQ(score(info.name, "a red house", {"a red house"}), 1) << info.name;
    EXPECT_EQ(score(info.name, "", {"a red house"}), 0) << info.name;
    EXPECT_EQ(score(info.name, "", {""}), 1) << info.name;
    EXPECT_EQ(score(info.name, "a red house", {""}), 0) << info.name;
  }
}

TEST(Metrics, Exact) {
  EXPECT_EQ(score("exact", " The Eiffel-Tower!\n", {"eiffeltower"}), 1);
  EXPECT_EQ(score("exact", "an apple", {"pear", "Apple."}), 1);
  EXPECT_EQ(score("exact", "apple pie", {"apple"}), 0);
  EXPECT_EQ(score("exact", "ÄRGER Москва", {"ärger москва"}), 1);
  EXPECT_EQ(score("exact", "theatre", {"atre"}), 0);  // an article is a word of its own
}

TEST(Metrics, Contains) {
  EXPECT_EQ(score("contains", "It is 1234567, I think", {"1234567"}), 1);
  EXPECT_EQ(score("contains", "lisbon", {"Porto", " Lisbon\n"}), 1);
  EXPECT_EQ(score("contains", "123456", {"1234567"}), 0);
  EXPECT_EQ(score("contains", "aabaabaaa", {"aabaaa"}), 1);  // a search that must fall back within the word
  EXPECT_EQ(score("contains", "aabaabaab", {"aabaaa"}), 0);
}

TEST(Metrics, ContainsAll) {
  EXPECT_DOUBLE_EQ(score("contains_all", "11, 33 and 44", {"11", "22", "33", "44"}), 0.75);
  EXPECT_DOUBLE_EQ(score("contains_all", "none", {"11", "22"}), 0);
  EXPECT_DOUBLE_EQ(score("contains_all", "ABC", {"abc"}), 1);
}

TEST(Metrics, F1) {
  // Words: cat sat on mat / cat sat; shared 2, P = 2/4, R = 2/2.
  EXPECT_DOUBLE_EQ(score("f1", "The cat sat on a mat", {"cat sat"}), 2.0 / 3);
  // A word counts as often as both have it: shared 1, P = 1/3, R = 1/1.
  EXPECT_DOUBLE_EQ(score("f1", "no no no", {"no"}), 0.5);
  EXPECT_DOUBLE_EQ(score("f1", "red blue", {"green", "blue", "red blue yellow black"}), 2.0 / 3);
  EXPECT_DOUBLE_EQ(score("f1", "the", {"a"}), 1);  // nothing is left of both
}

TEST(Metrics, RougeL) {
  // Lin 2004: "police killed the gunman" against "police kill the gunman" (3 of 4) and "the gunman kill police" (2).
  EXPECT_DOUBLE_EQ(score("rouge_l", "police kill the gunman", {"police killed the gunman"}), 0.75);
  EXPECT_DOUBLE_EQ(score("rouge_l", "the gunman kill police", {"police killed the gunman"}), 0.5);
  // 2 of 2 and 2 of 6 words: P = 1, R = 1/3.
  EXPECT_DOUBLE_EQ(score("rouge_l", "Cat, mat!", {"the cat sat on the mat"}), 0.5);
  EXPECT_DOUBLE_EQ(score("rouge_l", "... !", {"?"}), 1);  // no words on either side
}

TEST(Metrics, Edit) {
  EXPECT_DOUBLE_EQ(score("edit", "kitten", {"sitting"}), 1 - 3.0 / 7);
  EXPECT_DOUBLE_EQ(score("edit", "abcd", {"xyz", "abxd"}), 0.75);
  EXPECT_DOUBLE_EQ(score("edit", "größe", {"grösse"}), 1 - 2.0 / 6);  // characters, not bytes
  EXPECT_DOUBLE_EQ(score("edit", "  return x;\n", {"return x;"}), 1);
  EXPECT_DOUBLE_EQ(score("edit", "Abc", {"abc"}), 1 - 1.0 / 3);
}

TEST(Metrics, InvalidUtf8CountsAsItself) {
  const std::string bad = "a\xff\xc3(\xed\xa0\x80\xf5z\xe2\x82";
  for (const MetricInfo& info : metrics()) {
    EXPECT_EQ(score(info.name, bad, {bad}), 1) << info.name;
    EXPECT_GE(score(info.name, bad, {"a(z"}), 0) << info.name;
  }
  EXPECT_DOUBLE_EQ(score("edit", "\xff", {"\xfe"}), 0);
  EXPECT_DOUBLE_EQ(score("edit", "a\xff", {"a\xc3\xbf"}), 0.5);  // a byte is not the character of the same number
  EXPECT_EQ(score("contains", "\xe4", {"\xc3\xa4"}), 0);
}

TEST(Metrics, TenMegabytesEndInSeconds) {
  constexpr size_t n = 10'000'000;
  std::string words, letters;
  uint32_t state = 1;
  while (letters.size() < n) {
    state = state * 1664525 + 1013904223;
    letters += static_cast<char>('a' + (state >> 28));
    words += static_cast<char>('a' + (state >> 28));
    if (state >> 24 & 1)
      words += ' ';
  }
  words.resize(n);
  const std::string other_words(words.rbegin(), words.rend());
  const auto start = std::chrono::steady_clock::now();
  for (const MetricInfo& info : metrics()) {
    const double far = score(info.name, words, {other_words});
    EXPECT_TRUE(far >= 0 && far <= 1) << info.name;
  }
  EXPECT_GT(score("edit", letters + "q", {letters}), 0.9999999 - 1e-6);
  EXPECT_EQ(score("contains", std::string(n, 'a'), {std::string(n / 2, 'a') + "b"}), 0);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  EXPECT_LT(seconds.count(), 100);  // a few on an idle machine
}

}  // namespace
}  // namespace kedge::eval
