#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "eviction/select.h"
#include "eviction/synthetic_heads.h"
#include "eviction/window_scorer.h"

namespace kedge::eviction {
namespace {

SyntheticLayer ragged_layer(uint32_t seed) {
  std::mt19937 random(seed);
  SyntheticLayer layer;
  for (int h = 0; h < 3; ++h) {
    SyntheticSpec spec;
    spec.n_rows = 150 + static_cast<int>(random() % 200);
    spec.tail = random() % 2 == 0 ? 0 : 40;
    spec.seed = static_cast<uint32_t>(random());
    spec.head = h;
    layer.push_back(std::make_unique<SyntheticHead>(spec));
  }
  return layer;
}

std::vector<std::string> every_policy() {
  std::vector<std::string> texts;
  for (const Method& scorer : scorers()) {
    for (const Method& allocator : allocators()) {
      for (const Method& schedule : schedules()) {
        texts.push_back(scorer.info.name + "/" + allocator.info.name + "/" + schedule.info.name);
      }
    }
  }
  return texts;
}

int64_t rows_in(const LayerDecision& decision) {
  int64_t n = 0;
  for (const auto& keep : decision.keep)
    n += static_cast<int64_t>(keep.size());
  return n;
}

int64_t blocks_in(const LayerDecision& decision, int32_t growth) {
  int64_t n = 0;
  for (const auto& keep : decision.keep)
    n += (static_cast<int64_t>(keep.size()) + growth + kBlockRows - 1) / kBlockRows;
  return n;
}

void expect_sane(const LayerDecision& decision, const LayerInput& in, const std::string& text) {
  ASSERT_EQ(decision.keep.size(), in.heads.size()) << text;
  for (size_t h = 0; h < in.heads.size(); ++h) {
    const auto& keep = decision.keep[h];
    ASSERT_GE(keep.size(), 1U) << text;
    ASSERT_TRUE(std::adjacent_find(keep.begin(), keep.end(), std::greater_equal<>()) == keep.end()) << text;
    ASSERT_GE(keep.front(), 0);
    ASSERT_LT(keep.back(), in.heads[h].rows.n_rows);
    ASSERT_EQ(decision.score[h].size(), static_cast<size_t>(in.heads[h].rows.n_rows));
    for (const float s : decision.score[h])
      ASSERT_TRUE(std::isfinite(s)) << text;
  }
}

void expect_protected_kept(const LayerDecision& decision, const LayerInput& in, const std::string& text) {
  for (size_t h = 0; h < in.heads.size(); ++h) {
    std::vector<uint8_t> flags(static_cast<size_t>(in.heads[h].rows.n_rows));
    mark_protected(in.heads[h].rows, in.n_sinks, in.n_recent, flags);
    for (size_t i = 0; i < flags.size(); ++i) {
      if (flags[i] == 0)
        continue;
      ASSERT_TRUE(std::binary_search(decision.keep[h].begin(), decision.keep[h].end(), static_cast<int32_t>(i)))
          << text << " head " << h << " row " << i;
    }
  }
}

TEST(DecideLayer, EveryPolicyKeepsTheBudgetAndWhatIsProtected) {
  const SyntheticLayer layer = ragged_layer(1);
  SerialExecutor executor;
  for (const std::string& text : every_policy()) {
    const Policy policy = policy_of(text);
    LayerInput in{.heads = inputs_of(layer), .n_sinks = policy.sinks.rows(60), .n_recent = policy.recent.rows(60)};
    in.rows_total = 180;
    const LayerDecision exact = decide_layer(policy, in, executor);
    expect_sane(exact, in, text);
    expect_protected_kept(exact, in, text);
    EXPECT_EQ(rows_in(exact), 180) << text;

    in.rows_total = 0;
    in.growth = 5;
    in.blocks_total = 13;
    const LayerDecision rounded = decide_layer(policy, in, executor);
    expect_sane(rounded, in, text);
    expect_protected_kept(rounded, in, text);
    EXPECT_EQ(blocks_in(rounded, in.growth), in.blocks_total) << text;
    EXPECT_GE(rows_in(rounded), 13 * kBlockRows - 3 * in.growth - 30) << text;
  }
}

TEST(DecideLayer, ABudgetForEverythingKeepsEverything) {
  const SyntheticLayer layer = ragged_layer(2);
  SerialExecutor executor;
  for (const std::string& text : every_policy()) {
    LayerInput in{.heads = inputs_of(layer), .n_sinks = 4, .n_recent = 20, .blocks_total = 10000, .growth = 64};
    const LayerDecision decision = decide_layer(policy_of(text), in, executor);
    for (size_t h = 0; h < in.heads.size(); ++h) {
      EXPECT_EQ(static_cast<int32_t>(decision.keep[h].size()), in.heads[h].rows.n_rows) << text;
    }
  }
}

TEST(DecideLayer, ThreadCountsChooseTheSameRowsAndScores) {
  SerialExecutor one;
  ThreadExecutor two(2);
  ThreadExecutor five(5);
  for (uint32_t seed = 3; seed < 8; ++seed) {
    const SyntheticLayer layer = ragged_layer(seed);
    for (const Method& scorer : scorers()) {
      const Policy policy = policy_of(scorer.info.name);
      const LayerInput in{.heads = inputs_of(layer), .n_sinks = 4, .n_recent = 20, .blocks_total = 12, .growth = 3};
      const LayerDecision expected = decide_layer(policy, in, one);
      for (Executor* executor : {static_cast<Executor*>(&two), static_cast<Executor*>(&five)}) {
        const LayerDecision decision = decide_layer(policy, in, *executor);
        EXPECT_EQ(decision.keep, expected.keep) << scorer.info.name;
        EXPECT_EQ(decision.score, expected.score) << scorer.info.name;  // bit by bit
      }
    }
  }
}

TEST(DecideLayer, ProtectionThatDoesNotFitIsClippedNewestAndSinksFirst) {
  const SyntheticLayer layer = ragged_layer(9);
  SerialExecutor executor;
  LayerInput in{.heads = inputs_of(layer), .n_sinks = 8, .n_recent = 500};
  in.rows_total = 60;
  const Policy policy = policy_of("random/uniform");
  const LayerDecision decision = decide_layer(policy, in, executor);
  EXPECT_EQ(rows_in(decision), 60);
  for (size_t h = 0; h < in.heads.size(); ++h) {
    const KvHeadView& rows = in.heads[h].rows;
    for (int32_t i = 0; rows.position(i) < 8; ++i)
      EXPECT_EQ(decision.keep[h][static_cast<size_t>(i)], i);
    for (int32_t i = rows.n_rows - 11; i < rows.n_rows; ++i) {
      EXPECT_TRUE(std::binary_search(decision.keep[h].begin(), decision.keep[h].end(), i));
    }
  }
}

TEST(DecideLayer, ImpossibleBudgetsLeaveARowPerHead) {
  const SyntheticLayer layer = ragged_layer(10);
  SerialExecutor executor;
  for (const std::string& text : every_policy()) {
    for (const int64_t blocks : {0, 1, 2, 3, 4}) {
      LayerInput in{.heads = inputs_of(layer), .n_sinks = 40, .n_recent = 100, .blocks_total = blocks, .growth = 20};
      const LayerDecision decision = decide_layer(policy_of(text), in, executor);
      expect_sane(decision, in, text);
      EXPECT_LE(blocks_in(decision, in.growth), std::max<int64_t>(blocks, 6)) << text;
    }
  }
}

TEST(DecideLayer, TinyHeadsAndNoQueries) {
  SyntheticLayer layer;
  for (const int n_rows : {1, 2, 17}) {
    SyntheticSpec spec;
    spec.n_rows = n_rows;
    spec.n_window = 1;
    spec.gap = 0;
    layer.push_back(std::make_unique<SyntheticHead>(spec));
  }
  SerialExecutor executor;
  for (const std::string& text : every_policy()) {
    LayerInput in{.heads = inputs_of(layer), .rows_total = 6};
    const LayerDecision decision = decide_layer(policy_of(text), in, executor);
    expect_sane(decision, in, text);
    EXPECT_EQ(rows_in(decision), 6) << text;
    for (HeadInput& head : in.heads)
      head.n_window = 0;
    expect_sane(decide_layer(policy_of(text), in, executor), in, text);
  }
}

TEST(DecideLayer, WithoutObservationsTheNewestStay) {
  const SyntheticLayer layer = ragged_layer(12);
  SerialExecutor executor;
  LayerInput in{.heads = inputs_of(layer), .rows_total = 90};
  for (HeadInput& head : in.heads)
    head.n_window = 0;
  const LayerDecision decision = decide_layer(policy_of("andpro:chunk=1/uniform"), in, executor);
  for (size_t h = 0; h < in.heads.size(); ++h) {
    ASSERT_EQ(decision.keep[h].size(), 30U);
    EXPECT_EQ(decision.keep[h].front(), in.heads[h].rows.n_rows - 30);
  }
}

TEST(Scorers, StreamingKeepsSinksAndTheNewest) {
  SyntheticLayer layer;
  layer.push_back(std::make_unique<SyntheticHead>(SyntheticSpec{.n_rows = 100, .n_window = 1, .gap = 0}));
  SerialExecutor executor;
  const Policy policy = policy_of("streaming");
  const LayerInput in{.heads = inputs_of(layer),
                      .n_sinks = policy.sinks.rows(10),
                      .n_recent = policy.recent.rows(10),
                      .rows_total = 10};
  EXPECT_THAT(decide_layer(policy, in, executor).keep[0], testing::ElementsAre(0, 1, 2, 3, 94, 95, 96, 97, 98, 99));
}

TEST(Scorers, RandomDependsOnSeedHeadAndPositionOnly) {
  SyntheticHead head({.n_rows = 4000, .n_window = 1, .gap = 0.2});
  const Policy policy = policy_of("random");
  const auto scores = [&](uint64_t seed, int layer, int kv_head) {
    HeadInput in = head.input();
    in.seed = seed;
    in.layer = layer;
    in.head = kv_head;
    std::vector<float> score(4000);
    policy.scorer->score(in, score);
    return score;
  };
  const auto score = scores(1, 2, 3);
  EXPECT_EQ(score, scores(1, 2, 3));
  EXPECT_NE(score, scores(2, 2, 3));
  EXPECT_NE(score, scores(1, 3, 3));
  EXPECT_NE(score, scores(1, 2, 4));
  EXPECT_NE(score, scores(1, 3, 2));
  const double mean = std::accumulate(score.begin(), score.end(), 0.0) / 4000;
  EXPECT_NEAR(mean, 0.5, 0.03);
  for (const float s : score)
    ASSERT_TRUE(s >= 0 && s < 1);
}

TEST(Pooling, EqualsItsDefinition) {
  std::mt19937 random(4);
  for (int round = 0; round < 500; ++round) {
    const int n = 1 + static_cast<int>(random() % 60);
    const int width = 1 + 2 * static_cast<int>(random() % 16);
    std::vector<float> values(static_cast<size_t>(n));
    for (float& value : values)
      value = std::uniform_real_distribution<float>()(random);
    std::vector<float> largest = values;
    std::vector<float> mean = values;
    max_pool(largest, width);
    average_pool(mean, width);
    for (int i = 0; i < n; ++i) {
      const auto begin = values.begin() + std::max(i - width / 2, 0);
      const auto end = values.begin() + std::min(i + width / 2 + 1, n);
      EXPECT_EQ(largest[static_cast<size_t>(i)], *std::max_element(begin, end));
      EXPECT_NEAR(mean[static_cast<size_t>(i)], std::accumulate(begin, end, 0.0) / width, 1e-6);
    }
  }
}

}  // namespace
}  // namespace kedge::eviction
