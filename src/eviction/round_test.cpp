#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "eviction/select.h"

namespace kedge::eviction {
namespace {

using testing::ElementsAre;

int64_t blocks_of(const std::vector<int32_t>& rows, int32_t growth) {
  int64_t blocks = 0;
  for (const int32_t r : rows)
    blocks += (r + growth + kBlockRows - 1) / kBlockRows;
  return blocks;
}

int64_t sum_of(const std::vector<int32_t>& v) { return std::accumulate(v.begin(), v.end(), int64_t{0}); }

TEST(RoundToBlocks, GivesTheLargestRemainderTheBlock) {
  // 48 rows = 3 blocks for wishes of 10, 25, 13: floors 0, 1, 0; the remainders 10, 9, 13 give the two left to heads 2
  // and 0.
  EXPECT_THAT(
      round_to_blocks(
          {.rows = {10, 25, 13}, .minimum = {1, 1, 1}, .available = {99, 99, 99}, .growth = 0, .blocks_total = 3}),
      ElementsAre(16, 16, 16));
  EXPECT_THAT(
      round_to_blocks({.rows = {8, 8}, .minimum = {1, 1}, .available = {99, 99}, .growth = 8, .blocks_total = 3}),
      ElementsAre(24, 8));
}

TEST(RoundToBlocks, KeepsMinimaAndLimits) {
  EXPECT_THAT(
      round_to_blocks({.rows = {40, 8}, .minimum = {1, 17}, .available = {99, 99}, .growth = 0, .blocks_total = 3}),
      ElementsAre(16, 32));
  EXPECT_THAT(
      round_to_blocks({.rows = {5, 90}, .minimum = {5, 1}, .available = {5, 90}, .growth = 0, .blocks_total = 100}),
      ElementsAre(5, 90));
}

TEST(RoundToBlocks, LowersImpossibleMinimaButKeepsARow) {
  EXPECT_THAT(
      round_to_blocks({.rows = {60, 20}, .minimum = {60, 20}, .available = {99, 99}, .growth = 0, .blocks_total = 3}),
      ElementsAre(32, 16));
  EXPECT_THAT(
      round_to_blocks(
          {.rows = {60, 20, 0}, .minimum = {60, 20, 0}, .available = {99, 99, 0}, .growth = 40, .blocks_total = 0}),
      ElementsAre(8, 8, 0));
}

struct Case {
  RoundInput in;
  int64_t least_blocks = 0;
};

Case random_case(std::mt19937& random) {
  Case c;
  const size_t n = 1 + random() % 9;
  c.in.growth = static_cast<int32_t>(random() % 3 == 0 ? 0 : random() % 70);
  int64_t most_blocks = 0;
  for (size_t h = 0; h < n; ++h) {
    const auto available = static_cast<int32_t>(1 + random() % 500);
    const auto minimum = static_cast<int32_t>(1 + random() % std::min(available, 60));
    c.in.available.push_back(available);
    c.in.minimum.push_back(minimum);
    most_blocks += (available + c.in.growth + kBlockRows - 1) / kBlockRows;
  }
  c.least_blocks = blocks_of(c.in.minimum, c.in.growth);
  c.in.blocks_total = c.least_blocks + static_cast<int64_t>(random() % (most_blocks - c.least_blocks + 3));
  // Wishes as an allocator makes them: they sum to the rows that the blocks hold, or to what there is.
  c.in.rows = c.in.minimum;
  const int64_t total =
      std::min(c.in.blocks_total * kBlockRows - static_cast<int64_t>(n) * c.in.growth, sum_of(c.in.available));
  for (int64_t left = total - sum_of(c.in.rows); left > 0;) {
    const size_t h = random() % n;
    const auto more = static_cast<int32_t>(
        std::min<int64_t>({left, c.in.available[h] - c.in.rows[h], 1 + static_cast<int64_t>(random() % 50)}));
    c.in.rows[h] += more;
    left -= more;
  }
  return c;
}

TEST(RoundToBlocks, InvariantsOnRandomInput) {
  std::mt19937 random(21);
  for (int round = 0; round < 5000; ++round) {
    const Case c = random_case(random);
    const auto rows = round_to_blocks(c.in);
    ASSERT_EQ(rows.size(), c.in.rows.size());
    ASSERT_LE(blocks_of(rows, c.in.growth), c.in.blocks_total);
    bool anybody_could_take = false;
    for (size_t h = 0; h < rows.size(); ++h) {
      ASSERT_GE(rows[h], c.in.minimum[h]);
      ASSERT_LE(rows[h], c.in.available[h]);
      anybody_could_take |= rows[h] < c.in.available[h];
      // whole blocks, but where a head has no more rows or may not have fewer
      ASSERT_TRUE((rows[h] + c.in.growth) % kBlockRows == 0 || rows[h] == c.in.available[h] ||
                  rows[h] == c.in.minimum[h]);
    }
    ASSERT_TRUE(!anybody_could_take || blocks_of(rows, c.in.growth) == c.in.blocks_total);
    // At most a block per head is lost against the wish.
    ASSERT_LE(std::abs(sum_of(rows) - sum_of(c.in.rows)), static_cast<int64_t>(rows.size()) * (kBlockRows - 1));
    ASSERT_EQ(rows, round_to_blocks(c.in));
  }
}

TEST(RoundToBlocks, SurvivesImpossibleInput) {
  std::mt19937 random(22);
  for (int round = 0; round < 2000; ++round) {
    Case c = random_case(random);
    c.in.blocks_total = static_cast<int64_t>(random() % (c.least_blocks + 1)) - 1;
    const auto rows = round_to_blocks(c.in);
    const std::vector<int32_t> one(rows.size(), 1);
    ASSERT_LE(blocks_of(rows, c.in.growth), std::max(c.in.blocks_total, blocks_of(one, c.in.growth)));
    for (size_t h = 0; h < rows.size(); ++h) {
      ASSERT_GE(rows[h], 1);
      ASSERT_LE(rows[h], c.in.available[h]);
    }
  }
}

}  // namespace
}  // namespace kedge::eviction
