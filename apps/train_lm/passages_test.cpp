#include "train_lm/passages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace kedge::lm {
namespace {

// A token is a byte.
Words bytes() {
  return {.tokenize = [](std::string_view text) { return std::vector<Token>(text.begin(), text.end()); },
          .piece = [](Token token) { return std::string(1, static_cast<char>(token)); }};
}

std::string text_of(std::span<const Token> tokens) { return {tokens.begin(), tokens.end()}; }

std::vector<Token> lines(int n) {
  std::string text;
  for (int i = 0; i < n; ++i)
    text += "line " + std::to_string(i) + " of a long text\n";
  return {text.begin(), text.end()};
}

TEST(Passages, NeedlesAreStatedOnceAndAskedForAtTheEnd) {
  const std::vector<Token> text = lines(200);
  eval::Random random(1, "needles");
  const Body body = plant_needles(text, bytes(), random);
  ASSERT_EQ(body.candidates.size(), 6U);
  std::set<std::string> questions;
  const std::string all = text_of(body.tokens);
  for (const Candidate& one : body.candidates) {
    EXPECT_LE(body.tokens.size() + one.tail.size(), text.size());
    const std::string stated = all.substr(static_cast<size_t>(one.begin), static_cast<size_t>(one.end - one.begin));
    EXPECT_EQ(stated, text_of(one.tail)) << "asked in the words in which it is stated";
    const std::string answer = text_of(std::span(one.tail).subspan(static_cast<size_t>(one.n_asked)));
    EXPECT_EQ(answer.size(), 10U) << answer;  // " AB-12345."
    EXPECT_EQ(all.find(answer), static_cast<size_t>(one.begin + one.n_asked));
    EXPECT_EQ(all.find(answer, static_cast<size_t>(one.end)), std::string::npos) << "nowhere else";
    EXPECT_EQ(all[static_cast<size_t>(one.begin) - 1], '\n') << "at a line's end";
    EXPECT_LT(static_cast<double>(one.end), 0.85 * static_cast<double>(body.tokens.size()));
    questions.insert(text_of(std::span(one.tail).first(static_cast<size_t>(one.n_asked))));
  }
  EXPECT_EQ(questions.size(), 6U);
}

TEST(Passages, CopiesAreStretchesOfTheText) {
  const std::vector<Token> text = lines(120);
  eval::Random random(2, "copies");
  const Body body = find_copies(text, bytes(), random);
  ASSERT_GT(body.candidates.size(), 10U);
  for (const Candidate& one : body.candidates) {
    EXPECT_EQ(body.tokens.size() + one.tail.size(), text.size());
    EXPECT_TRUE(
        std::equal(one.tail.begin(), one.tail.end(), body.tokens.begin() + one.begin, body.tokens.begin() + one.end));
    EXPECT_GT(one.n_asked, 0);
    EXPECT_LT(one.n_asked, static_cast<int64_t>(one.tail.size()) / 2);
  }
}

TEST(Passages, ATextThatIsTooShortOrHasNoPlacesGivesNone) {
  eval::Random random(3, "short");
  EXPECT_TRUE(plant_needles(lines(3), bytes(), random).candidates.empty());
  EXPECT_TRUE(find_copies(lines(3), bytes(), random).candidates.empty());
  const std::vector<Token> flat(5000, 'x');
  EXPECT_TRUE(plant_needles(flat, bytes(), random).candidates.empty());
  EXPECT_TRUE(find_copies(flat, bytes(), random).candidates.empty());
}

TEST(Passages, TheHardestIsTheOneWhoseRowsAreKeptLeast) {
  const Body body{.tokens = std::vector<Token>(10),
                  .candidates = {{.begin = 0, .end = 3}, {.begin = 3, .end = 6}, {.begin = 6, .end = 10}}};
  std::vector<double> keep = {0.5, 0.5, 0.5, 0.9, 0.1, 0.2, 0.45, 0.45, 0.45, 0.45};
  EXPECT_EQ(hardest(body, keep), 1U);
  keep[3] = 1.5;
  EXPECT_EQ(hardest(body, keep), 2U);
}

}  // namespace
}  // namespace kedge::lm
