// Orders, ranks and parts, on values worked out by hand.
#include "eviction/explain.h"

#include <gtest/gtest.h>

#include <cmath>

#include "eviction/example.h"
#include "eviction/synthetic_heads.h"

namespace kedge::eviction {
namespace {

TEST(Explain, RowsAreKeptByScoreAndTiesByPosition) {
  EXPECT_EQ(keep_order(std::vector<float>{1, 3, 2, 3}, 1), (std::vector<int32_t>{1, 3, 2, 0}));
  // Chunks (0, 1) = 4 and (2, 3) = 5: of the better chunk the better row first.
  EXPECT_EQ(keep_order(std::vector<float>{4, 0, 2, 3}, 2), (std::vector<int32_t>{3, 2, 0, 1}));
  EXPECT_EQ(keep_order(std::vector<float>{NAN, -1}, 1), (std::vector<int32_t>{1, 0}));
  EXPECT_TRUE(keep_order({}, 4).empty());
}

TEST(Explain, RanksLeaveOutProtectedRows) {
  const std::vector<float> score = {9, 1, 5, 3, NAN};
  EXPECT_EQ(score_ranks(score, std::vector<uint8_t>{1, 0, 0, 0, 0}),
            (std::vector<float>{-1, 1 - 2.0F / 3, 1, 1 - 1.0F / 3, 0}));
  EXPECT_EQ(score_ranks(std::vector<float>{2, 2}, {}), (std::vector<float>{1, 0})) << "ties: the earlier row";
  EXPECT_EQ(score_ranks(std::vector<float>{2, 7}, std::vector<uint8_t>{0, 1}), (std::vector<float>{1, -1}));
  EXPECT_EQ(score_ranks(std::vector<float>{2, 7}, {}, 2), (std::vector<float>{1 - 1.0F / 3, 1})) << "above two gone";
  EXPECT_TRUE(score_ranks({}, {}).empty());
}

// Weights of the two queries on the six rows: eviction/example_test.cpp.
TEST(Explain, AndProIsAttentionTimesProjection) {
  const Policy policy = policy_of("andpro:pool=1");
  const ExampleHead head;
  const std::vector<float> score = example_scores(*policy.scorer);
  const std::vector<ScorePart> parts = policy.scorer->explain(head.input(), score);
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[0].name, "attention");
  EXPECT_EQ(parts[1].name, "projection");
  EXPECT_NEAR(parts[0].value[0], (0.4984 + 0.3087) / 2, 1e-3);
  EXPECT_NEAR(parts[0].value[5], 0.1136 / 2, 1e-3);
  for (size_t i = 0; i < score.size(); ++i)
    EXPECT_NEAR(2 * parts[0].value[i] * parts[1].value[i], score[i], 1e-5) << "row " << i;
}

TEST(Explain, SnapKvShowsTheAttentionBeforePooling) {
  const Policy policy = policy_of("snapkv:window=1,pool=3");
  const ExampleHead head;
  const std::vector<ScorePart> parts = policy.scorer->explain(head.input(), example_scores(*policy.scorer));
  ASSERT_EQ(parts.size(), 1U);
  EXPECT_NEAR(parts[0].value[0], 0.3087, 1e-3);
  EXPECT_NEAR(parts[0].value[3], 0.0418, 1e-3);
}

TEST(Explain, PartsOfEveryScorerHaveAValueForEachRow) {
  for (const Method& method : scorers()) {
    const Policy policy = policy_of(method.info.name);
    const ExampleHead head;
    for (const ScorePart& part : policy.scorer->explain(head.input(), example_scores(*policy.scorer))) {
      EXPECT_FALSE(part.name.empty()) << method.info.name;
      EXPECT_EQ(part.name.find(' '), std::string::npos) << method.info.name;
      ASSERT_EQ(part.value.size(), size_t{ExampleHead::kRows}) << method.info.name;
      for (const float value : part.value)
        EXPECT_TRUE(std::isfinite(value)) << method.info.name << " " << part.name;
    }
  }
}

}  // namespace
}  // namespace kedge::eviction
