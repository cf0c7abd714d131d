#include "eviction/select.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "eviction/compete.h"
#include "eviction/synthetic_heads.h"

namespace kedge::eviction {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

// The definition, as slowly as it reads: chunks sorted by sum, rows of the cut chunk sorted by score.
std::vector<int32_t> select_slowly(const std::vector<float>& score, const std::vector<uint8_t>& flags, int64_t k,
                                   int chunk) {
  struct Chunk {
    double sum;
    std::vector<int32_t> rows;
  };
  std::vector<Chunk> chunks;
  std::vector<int32_t> keep;
  for (size_t i = 0; i < score.size(); ++i) {
    if (i % chunk == 0)
      chunks.push_back({});
    if (flags[i] != 0) {
      keep.push_back(static_cast<int32_t>(i));
    } else {
      chunks.back().sum += score[i];
      chunks.back().rows.push_back(static_cast<int32_t>(i));
    }
  }
  const auto first = [](double a, double b) { return std::isnan(b) ? !std::isnan(a) : a > b; };
  std::stable_sort(chunks.begin(), chunks.end(), [&](const Chunk& a, const Chunk& b) { return first(a.sum, b.sum); });
  for (Chunk& one : chunks) {
    if (static_cast<int64_t>(keep.size() + one.rows.size()) > k) {
      std::stable_sort(one.rows.begin(), one.rows.end(),
                       [&](int32_t a, int32_t b) { return first(score[a], score[b]); });
    }
    for (const int32_t row : one.rows) {
      if (static_cast<int64_t>(keep.size()) < k)
        keep.push_back(row);
    }
  }
  std::sort(keep.begin(), keep.end());
  return keep;
}

TEST(Select, TakesTheBestAndBreaksTiesByPosition) {
  const std::vector<float> score = {1, 3, 2, 3, 1, 3};
  EXPECT_THAT(select(score, {}, 2, 1), ElementsAre(1, 3));
  EXPECT_THAT(select(score, {}, 4, 1), ElementsAre(1, 2, 3, 5));
  EXPECT_THAT(select(std::vector<float>(9, 0.0F), {}, 3, 1), ElementsAre(0, 1, 2));
  EXPECT_THAT(select(score, {}, 0, 1), IsEmpty());
  EXPECT_THAT(select(score, {}, -5, 1), IsEmpty());
  EXPECT_EQ(select(score, {}, 99, 1).size(), 6U);
  EXPECT_THAT(select({}, {}, 3, 4), IsEmpty());
}

TEST(Select, NanLosesToEverything) {
  EXPECT_THAT(select(std::vector<float>{kNan, -kInf, kNan, -5}, {}, 2, 1), ElementsAre(1, 3));
  EXPECT_THAT(select(std::vector<float>{kNan, kNan, kNan}, {}, 2, 1), ElementsAre(0, 1));
  EXPECT_THAT(select(std::vector<float>{9, kNan, -1, -1}, {}, 2, 2), ElementsAre(2, 3));
  EXPECT_THAT(select(std::vector<float>{kNan, 9, kInf, -kInf}, {}, 1, 4), ElementsAre(2));
}

TEST(Select, ChunksCompeteByTheirSum) {
  //                                  5           4              6
  const std::vector<float> score = {5, 0, 0, 0, 1, 1, 1, 1, 2, 2, 1, 1};
  EXPECT_THAT(select(score, {}, 4, 4), ElementsAre(8, 9, 10, 11));
  EXPECT_THAT(select(score, {}, 5, 4), ElementsAre(0, 8, 9, 10, 11));
  EXPECT_THAT(select(score, {}, 2, 4), ElementsAre(8, 9));
  EXPECT_THAT(select(score, {}, 9, 4), ElementsAre(0, 1, 2, 3, 4, 8, 9, 10, 11));
}

TEST(Select, SinksSurviveThenTheNewest) {
  const std::vector<float> score(10, 1.0F);
  const std::vector<uint8_t> flags = {1, 1, 0, 0, 0, 0, 1, 1, 1, 1};
  EXPECT_THAT(select(score, flags, 6, 1), ElementsAre(0, 1, 6, 7, 8, 9));
  EXPECT_THAT(select(score, flags, 4, 1), ElementsAre(0, 1, 8, 9));
  EXPECT_THAT(select(score, flags, 1, 1), ElementsAre(0));
  EXPECT_THAT(select(score, std::vector<uint8_t>(10, 1), 3, 1), ElementsAre(7, 8, 9));
}

TEST(Select, EqualsItsDefinitionOnRandomInput) {
  std::mt19937 random(5);
  for (int round = 0; round < 2000; ++round) {
    const size_t n = random() % 120;
    std::vector<float> score(n);
    for (float& s : score) {
      s = static_cast<float>(static_cast<int>(random() % 9) - 4);  // many ties
      if (random() % 20 == 0)
        s = kNan;
    }
    std::vector<uint8_t> flags(n);
    for (uint8_t& flag : flags)
      flag = random() % 5 == 0 ? 1 : 0;
    const auto n_protected = std::count(flags.begin(), flags.end(), 1);
    const int64_t k = n_protected + static_cast<int64_t>(random() % (n - n_protected + 1));
    const int chunk = 1 + static_cast<int>(random() % 7);
    EXPECT_EQ(select(score, flags, k, chunk), select_slowly(score, flags, k, chunk)) << "n " << n << " k " << k;
    // Fewer rows than are protected: still exactly so many, protected ones only, in order.
    const auto few = select(score, flags, n_protected / 2, chunk);
    EXPECT_EQ(static_cast<int64_t>(few.size()), n_protected / 2);
    EXPECT_TRUE(std::is_sorted(few.begin(), few.end()));
    for (const int32_t row : few)
      EXPECT_EQ(flags[row], 1);
  }
}

TEST(MarkProtected, GoesByPositionAndByAge) {
  SyntheticHead head({.n_rows = 40, .n_window = 1, .gap = 0.5, .seed = 9});
  std::vector<uint8_t> flags(40);
  mark_protected(head.view, 6, 5, flags);
  for (int i = 0; i < 40; ++i)
    EXPECT_EQ(flags[i], head.row_positions[i] < 6 || i >= 35 ? 1 : 0) << i;
  mark_protected(head.view, 0, 0, flags);
  EXPECT_THAT(flags, testing::Each(0));
  mark_protected(head.view, 0, 1000, flags);
  EXPECT_THAT(flags, testing::Each(1));
  mark_protected(head.view, -3, -4, flags);
  EXPECT_THAT(flags, testing::Each(0));
}

TEST(LevelFill, IsEvenWithinBoundsAndExact) {
  std::mt19937 random(8);
  EXPECT_THAT(level_fill(std::vector<int32_t>{1, 1, 1}, std::vector<int32_t>{9, 9, 9}, 11), ElementsAre(4, 4, 3));
  EXPECT_THAT(level_fill(std::vector<int32_t>{6, 2, 1}, std::vector<int32_t>{9, 9, 9}, 5), ElementsAre(2, 2, 1));
  for (int round = 0; round < 2000; ++round) {
    const size_t n = 1 + random() % 8;
    std::vector<int32_t> lo(n);
    std::vector<int32_t> hi(n);
    for (size_t i = 0; i < n; ++i) {
      hi[i] = static_cast<int32_t>(random() % 100);
      lo[i] = static_cast<int32_t>(random() % (hi[i] + 1));
    }
    const int64_t sum_lo = std::accumulate(lo.begin(), lo.end(), int64_t{0});
    const int64_t sum_hi = std::accumulate(hi.begin(), hi.end(), int64_t{0});
    const int64_t total = sum_lo + static_cast<int64_t>(random() % (sum_hi - sum_lo + 20));
    const auto counts = level_fill(lo, hi, total);
    EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), int64_t{0}), std::min(total, sum_hi));
    int32_t lowest_growing = INT32_MAX;  // no head is more than a row ahead of one that could still take rows
    for (size_t i = 0; i < n; ++i) {
      EXPECT_GE(counts[i], lo[i]);
      EXPECT_LE(counts[i], hi[i]);
      if (counts[i] < hi[i])
        lowest_growing = std::min(lowest_growing, counts[i]);
    }
    for (size_t i = 0; i < n; ++i)
      EXPECT_TRUE(counts[i] == lo[i] || counts[i] - 1 <= lowest_growing);
  }
}

}  // namespace
}  // namespace kedge::eviction
