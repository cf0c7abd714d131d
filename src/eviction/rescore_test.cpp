#include "eviction/rescore.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "eviction/example.h"
#include "eviction/synthetic_heads.h"

namespace kedge::eviction {
namespace {

using testing::ElementsAre;
using testing::FloatEq;

Policy policy_of(const std::string& text) { return std::move(parse_policy(text, {})).value(); }

TEST(SeenHead, TakesEvenlySpreadQueriesEndingWithTheNewest) {
  SyntheticHead head({.n_rows = 60, .n_window = 10, .gap = 0});
  const HeadInput in = head.input();
  const SeenHead seen(in, 8, 4);  // of the last 8: 1 3 5 7
  ASSERT_EQ(seen.input().n_window, 4);
  const size_t floats = static_cast<size_t>(in.group) * static_cast<size_t>(in.rows.head_dim);
  for (int i = 0; i < 4; ++i) {
    const int t = 2 + 2 * i + 1;
    EXPECT_EQ(seen.input().query_positions[i], in.query_positions[t]);
    EXPECT_TRUE(std::equal(seen.input().q + i * floats, seen.input().q + (i + 1) * floats, in.q + t * floats));
    EXPECT_TRUE(std::equal(seen.input().y + i * floats, seen.input().y + (i + 1) * floats, in.y + t * floats));
  }
  EXPECT_EQ(SeenHead(in, 8).input().n_window, 8);
  EXPECT_EQ(SeenHead(in, 8, 20).input().n_window, 8);
  EXPECT_EQ(SeenHead(in, 8, 1).input().query_positions[0], in.query_positions[9]);
}

TEST(Rescore, MovesScoresPartOfTheWay) {
  std::vector<float> score = {1, 2, 3};
  blend(std::vector<float>{10, 20}, 0.75F, 8, score);
  EXPECT_THAT(score, ElementsAre(FloatEq(9.5F), FloatEq(19), FloatEq(24)));  // 0.75 * 10 + 0.25 * 8; ...; 8 * 3
}

TEST(Rescore, RowsWithoutAScoreStay) {
  std::vector<float> score(4, 7.0F);
  std::vector<uint8_t> is_protected = {1, 0, 0, 0};
  use_cached(std::vector<float>{3, -2}, score, is_protected);
  EXPECT_THAT(score, ElementsAre(3, -2, 0, 0));
  EXPECT_THAT(is_protected, ElementsAre(1, 0, 1, 1));
}

TEST(Rescore, ACachedEvictionUsesTheScoresThatAreThere) {
  SyntheticHead head({.n_rows = 40, .n_window = 8, .gap = 0});
  std::vector<float> cached(36);
  for (size_t i = 0; i < cached.size(); ++i)
    cached[i] = static_cast<float>(i * 7 % 36);
  LayerInput in{.heads = {head.input()}, .rows_total = 10};
  in.heads[0].cached = cached;
  in.scoring = Scoring::cached;
  SerialExecutor executor;
  const LayerDecision decision = decide_layer(policy_of("andpro:chunk=1/uniform"), in, executor);
  // the four newcomers and the rows with the six highest scores: 35 34 33 32 31 30 are at 7^-1 i mod 36 = 31 i mod 36
  std::vector<int32_t> expected = {36, 37, 38, 39};
  for (int i = 30; i < 36; ++i)
    expected.push_back(31 * i % 36);
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(decision.keep[0], expected);
  EXPECT_EQ(std::vector<float>(decision.score[0].begin(), decision.score[0].begin() + 36), cached);
}

TEST(Rescore, ARefreshByTheWholeWindowWithoutMemoryIsAScoring) {
  SyntheticHead head({.n_rows = 200, .n_window = 32, .gap = 0.2});
  SerialExecutor executor;
  LayerInput in{.heads = {head.input()}, .rows_total = 50};
  const LayerDecision all = decide_layer(policy_of("andpro:queries=32,memory=0"), in, executor);
  const std::vector<float> cached(150, 3.0F);
  in.heads[0].cached = cached;
  in.scoring = Scoring::sampled;
  EXPECT_EQ(decide_layer(policy_of("andpro:queries=32,memory=0"), in, executor).score, all.score);
  // with memory: half of the cached score and half of the new one; rows without one have the new one
  const LayerDecision half = decide_layer(policy_of("andpro:queries=32,memory=0.5"), in, executor);
  for (size_t i = 0; i < 200; ++i)
    EXPECT_FLOAT_EQ(half.score[0][i], i < 150 ? 1.5F + all.score[0][i] / 2 : all.score[0][i]) << i;
}

TEST(Rescore, FewQueriesEstimateTheWindowsSum) {
  SyntheticHead head({.n_rows = 300, .n_window = 32, .gap = 0});
  SerialExecutor executor;
  LayerInput in{.heads = {head.input()}, .rows_total = 50};
  const Policy policy = policy_of("andpro:queries=8,memory=0");
  const LayerDecision all = decide_layer(policy, in, executor);
  in.scoring = Scoring::sampled;
  const LayerDecision few = decide_layer(policy, in, executor);
  double sum_all = 0;
  double sum_few = 0;
  for (size_t i = 0; i < 300; ++i) {
    sum_all += all.score[0][i];
    sum_few += few.score[0][i];
  }
  EXPECT_NE(all.score, few.score);
  EXPECT_NEAR(sum_few / sum_all, 1, 0.5);
}

TEST(Policy, ColdStartIsAnOption) {
  EXPECT_EQ(policy_of("andpro").cold_start_tokens, 100);
  EXPECT_EQ(policy_of("andpro:cold=7").cold_start_tokens, 7);
  EXPECT_EQ(policy_of("streaming").cold_start_tokens, 0);
}

}  // namespace
}  // namespace kedge::eviction
