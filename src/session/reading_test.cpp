#include "session/reading.h"

#include <gtest/gtest.h>

#include "session/policy_clock.h"
#include "session/token_times.h"

namespace kedge::session {
namespace {

// 2 layers of 2 heads; 100 blocks in the store.
const kv::StoreShape kShape{.n_layers = 2, .n_kv_heads = 2, .head_dim = 16};

Plan plan_of(int followup_chunk) {
  Plan plan{.budget_bytes = 100 * kv::block_bytes_total(kShape), .evicts = true, .chunk_tokens = 300};
  plan.between_chunks = {.blocks = 11};
  plan.after_prompt = {.blocks = 12, .growth = 5};
  plan.decoding = {.blocks = 50, .growth = 64};
  plan.followup_chunk_tokens = followup_chunk;
  plan.followup = {.blocks = (100 - working_blocks(kShape, followup_chunk)) / 2};
  return plan;
}

TEST(Reading, WhatFitsIsReadInBatchesAndNothingIsCut) {
  const Reading reading = make_reading(plan_of(128), kShape, {.n_tokens = 250, .n_batch = 100, .fits = true});
  EXPECT_FALSE(reading.cut_first);
  ASSERT_EQ(reading.steps.size(), 3U);
  EXPECT_EQ(reading.steps[2].n_tokens, 50);
  for (const ReadStep& step : reading.steps)
    EXPECT_FALSE(step.evict);
}

TEST(Reading, ThePlannedPromptFollowsThePlan) {
  const Reading reading = make_reading(plan_of(128), kShape, {.n_tokens = 700, .planned = true});
  EXPECT_FALSE(reading.cut_first);
  ASSERT_EQ(reading.steps.size(), 3U);
  EXPECT_EQ(reading.steps[0].n_tokens, 300);
  EXPECT_EQ(reading.steps[0].target.blocks, 11);
  EXPECT_EQ(reading.steps[2].n_tokens, 100);
  EXPECT_EQ(reading.steps[2].target.blocks, 12);
  EXPECT_EQ(reading.steps[2].target.growth, 5);
}

TEST(Reading, WithoutBurstOneCutComesBeforeAnUnplannedText) {
  const Reading reading = make_reading(plan_of(128), kShape, {.n_tokens = 300});
  EXPECT_TRUE(reading.cut_first);
  EXPECT_EQ(reading.before.blocks, 41);  // (100 - 2 heads * (8 + 1)) / 2 layers
  ASSERT_EQ(reading.steps.size(), 3U);
  EXPECT_EQ(reading.steps[0].n_tokens, 128);
  EXPECT_EQ(reading.steps[0].target.blocks, 41);
  EXPECT_EQ(reading.steps[2].target.blocks, 49);  // 41 and the growth's 4 blocks in both heads
  EXPECT_EQ(reading.steps[2].target.growth, 64);
}

TEST(Reading, BurstTightensStepByStep) {
  const Reading reading = make_reading(plan_of(128), kShape, {.n_tokens = 600, .burst_steps = 4});
  EXPECT_TRUE(reading.cut_first);
  EXPECT_EQ(reading.before.blocks, 47);  // a chunk of 32 tokens takes 2 * (2 + 1) blocks
  ASSERT_EQ(reading.steps.size(), 7U);   // 32 64 96 128 128 128 24
  const std::vector<int64_t> tokens = {32, 64, 96, 128, 128, 128, 24};
  const std::vector<int64_t> blocks = {45, 43, 41, 41, 41, 41, 49};
  for (size_t i = 0; i < 7; ++i) {
    EXPECT_EQ(reading.steps[i].n_tokens, tokens[i]) << i;
    EXPECT_EQ(reading.steps[i].target.blocks, blocks[i]) << i;
  }
}

// While a chunk is read every layer may be at its target and one has the chunk's rows as well.
TEST(Reading, EveryStepStaysInsideTheBudget) {
  for (const int burst : {0, 1, 3, 8, 64}) {
    for (const int chunk : {16, 64, 128, 480}) {
      for (const int64_t n : {1, 15, 16, 17, 500, 5000}) {
        const Reading reading = make_reading(plan_of(chunk), kShape, {.n_tokens = n, .burst_steps = burst});
        EvictionTarget held = reading.before;
        int64_t read = 0;
        for (const ReadStep& step : reading.steps) {
          ASSERT_GT(step.n_tokens, 0);
          const int64_t working = working_blocks(kShape, step.n_tokens);
          EXPECT_LE(2 * held.blocks + working, 100) << burst << " " << chunk << " " << n;
          // The first layer is there, the second is still at what it was.
          const int64_t free_at_first = 2 * (step.target.growth / kBlockRows);
          EXPECT_LE(step.target.blocks - free_at_first + held.blocks + working, 100)
              << burst << " " << chunk << " " << n;
          held = step.target;
          read += step.n_tokens;
        }
        EXPECT_EQ(read, n);
        EXPECT_LE(2 * held.blocks, 100);
      }
    }
  }
}

TEST(Reading, ScaledTargetsLeaveARowAndTheGrowth) {
  EXPECT_EQ(scaled({.blocks = 40, .growth = 16}, 0.5, {.n_kv_heads = 2}).blocks, 20);
  EXPECT_EQ(scaled({.blocks = 40, .growth = 16}, 0.01, {.n_kv_heads = 2}).blocks, 4);  // 17 rows are 2 blocks
  EXPECT_EQ(scaled({.blocks = 40, .growth = 15}, 0.01, {.n_kv_heads = 2}).blocks, 2);  // 16 rows are 1
  EXPECT_EQ(scaled({.blocks = 3, .growth = 16}, 0.5, {.n_kv_heads = 2}).blocks, 3);    // never more than asked
  EXPECT_EQ(scaled({.blocks = 40}, 1, {.n_kv_heads = 2}).blocks, 40);
  EXPECT_EQ(scaled({.blocks = 40, .rows_exact = 7}, 0.5, {.n_kv_heads = 2}).blocks, 40);
}

TEST(TokenTimes, QuantilesAreWithinTheirStep) {
  TokenTimes times;
  EXPECT_EQ(times.quantile_ms(0.5), 0);
  for (int i = 1; i <= 1000; ++i)
    times.add(i * 0.01);
  times.add(70);
  EXPECT_EQ(times.n(), 1001);
  EXPECT_NEAR(times.quantile_ms(0.5), 5.01, 0.06);
  EXPECT_NEAR(times.quantile_ms(0.99), 9.91, 0.11);
  EXPECT_EQ(times.max_ms(), 70);
  EXPECT_NEAR(times.quantile_ms(1), 70, 0.8);
  times.add(0);
  times.add(1e12);
  EXPECT_EQ(times.max_ms(), 1e12);
}

TEST(PolicyClock, HoldsBackWhatWouldTakeLongerThanALayersPart) {
  using eviction::Scoring;
  PolicyClock none;
  EXPECT_FALSE(none.wants_sample());
  none.measured(Scoring::all, 1e6, 1);
  EXPECT_FALSE(none.holds_back(Scoring::all, 1000));

  PolicyClock clock(30, 10);  // 3 ms a layer
  EXPECT_TRUE(clock.wants_sample());
  clock.measured(Scoring::all, 2, 100);  // 0.02 ms a row
  EXPECT_FALSE(clock.wants_sample());
  EXPECT_FALSE(clock.holds_back(Scoring::all, 150));
  EXPECT_TRUE(clock.holds_back(Scoring::all, 151));
  EXPECT_TRUE(clock.holds_back(Scoring::sampled, 151)) << "not known: as slow as a full one";
  clock.measured(Scoring::sampled, 0.2, 100);
  EXPECT_FALSE(clock.holds_back(Scoring::sampled, 1500));
  EXPECT_TRUE(clock.holds_back(Scoring::sampled, 1501));
  for (int i = 1; i < 256; ++i)
    EXPECT_TRUE(clock.holds_back(Scoring::all, 1000)) << i;
  EXPECT_TRUE(clock.wants_sample()) << "what is known is old";
  clock.measured(Scoring::all, 0.1, 100);
  EXPECT_FALSE(clock.wants_sample());
  EXPECT_FALSE(clock.holds_back(Scoring::all, 2000));
}

}  // namespace
}  // namespace kedge::session
