#include "eval/metrics/distance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace kedge::eval {
namespace {

using Sequence = std::vector<uint32_t>;

Sequence of(std::string_view text) { return {text.begin(), text.end()}; }

// The textbook recurrences, as the oracle.
int64_t plain_distance(const Sequence& a, const Sequence& b) {
  std::vector<int64_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j)
    row[j] = static_cast<int64_t>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    int64_t diagonal = std::exchange(row[0], static_cast<int64_t>(i));
    for (size_t j = 1; j <= b.size(); ++j) {
      const int64_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({change, row[j] + 1, row[j - 1] + 1}));
    }
  }
  return row.back();
}

int64_t plain_subsequence(const Sequence& a, const Sequence& b) {
  std::vector<int64_t> row(b.size() + 1);
  for (const uint32_t symbol : a) {
    int64_t diagonal = 0;
    for (size_t j = 1; j <= b.size(); ++j)
      diagonal = std::exchange(row[j], symbol == b[j - 1] ? diagonal + 1 : std::max(row[j], row[j - 1]));
  }
  return row.back();
}

TEST(Distance, ByHand) {
  EXPECT_EQ(levenshtein(of("kitten"), of("sitting")), 3);
  EXPECT_EQ(levenshtein(of(""), of("abc")), 3);
  EXPECT_EQ(levenshtein(of("abc"), of("abc")), 0);
  EXPECT_EQ(levenshtein(of("flaw"), of("lawn")), 2);
  EXPECT_EQ(common_subsequence(of("AGGTAB"), of("GXTXAYB")), 4);
  EXPECT_EQ(common_subsequence(of("abc"), of("")), 0);
  EXPECT_EQ(common_subsequence(of("abc"), of("xyz")), 0);
}

TEST(Distance, AgreesWithTheTextbookAcrossBlocks) {
  uint32_t state = 7;
  const auto draw = [&state](uint32_t n) {
    state = state * 1664525 + 1013904223;
    return (state >> 16) % n;
  };
  for (int round = 0; round < 400; ++round) {
    const uint32_t alphabet = 1 + draw(6);
    Sequence a(draw(round % 2 == 0 ? 12 : 300)), b(draw(round % 3 == 0 ? 140 : 260));
    for (uint32_t& symbol : a)
      symbol = draw(alphabet);
    for (uint32_t& symbol : b)
      symbol = draw(alphabet);
    ASSERT_EQ(levenshtein(a, b), plain_distance(a, b)) << round;
    ASSERT_EQ(common_subsequence(a, b), plain_subsequence(a, b)) << round;
  }
}

TEST(Distance, BeyondTheBoundItIsOneSided) {
  // The same symbols, shifted by one: the true distance is 2, the true subsequence n - 1; no equal ends.
  const size_t n = 200'000;
  Sequence a(n), b(n);
  for (size_t i = 0; i < n; ++i) {
    a[i] = static_cast<uint32_t>(i);
    b[i] = static_cast<uint32_t>(i + 1);
  }
  b.back() = 1'000'000;
  const int64_t distance = levenshtein(a, b), shared = common_subsequence(a, b);
  EXPECT_GE(distance, 2);
  EXPECT_LE(distance, static_cast<int64_t>(n));
  EXPECT_LE(shared, static_cast<int64_t>(n) - 1);
  EXPECT_GE(shared, (1 << 16) - 1);  // what was compared was compared exactly
}

}  // namespace
}  // namespace kedge::eval
