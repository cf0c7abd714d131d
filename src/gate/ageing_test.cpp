// The networks of the ageing stage, by hand and against plain sums.
#include "gate/ageing.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace kedge::gate {
namespace {

TEST(Ageing, NamesGoBothWays) {
  for (int i = 0; i < kFeatures; ++i) {
    const auto feature = static_cast<Feature>(i);
    EXPECT_EQ(feature_of(feature_name(feature)), feature);
  }
  EXPECT_FALSE(feature_of("").has_value());
  EXPECT_FALSE(feature_of("ages").has_value());
  const Feature two[] = {Feature::age, Feature::logit};
  EXPECT_EQ(feature_names(two), "age,logit");
}

TEST(Ageing, ByHand) {
  Ageing ageing{.info = {.features = {Feature::logit, Feature::age}, .width = 1, .window = 8}, .layers = {}};
  ageing.layers.push_back({.w1 = {0, 0, 1, 2}, .b1 = {0, -1}, .w2 = {0, 3}, .b2 = {7, 0.5F}});
  const float f[] = {0, 1};  // of head 1 the hidden unit is gelu(1) = 0.8413447
  EXPECT_NEAR(ageing_logits(ageing, {.layer = 0, .head = 1}, f)[0], 0.5 + 3 * 0.8413447, 1e-6);
  EXPECT_EQ(ageing_logits(ageing, {.layer = 0, .head = 0}, f)[0], 7.0F);
  EXPECT_EQ(n_products(ageing.info), 3);
  ageing.info.width = 0;
  ageing.layers[0] = {.w1 = {}, .b1 = {}, .w2 = {1, 2, 3, 4}, .b2 = {0, 1}};
  EXPECT_EQ(ageing_logits(ageing, {.layer = 0, .head = 1}, f)[0], 5.0F);
  EXPECT_EQ(n_products(ageing.info), 2);
}

TEST(Ageing, EveryHeadOfEveryLayerHasItsOwnNetwork) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  const auto draw = [&](int n) {
    std::vector<float> out(static_cast<size_t>(n));
    for (float& one : out)
      one = normal(random);
    return out;
  };
  constexpr int kHeads = 3;
  constexpr int kWidth = 5;
  Ageing ageing{.info = {.features = {Feature::logit, Feature::age, Feature::key_norm}, .width = kWidth, .window = 8},
                .layers = {}};
  for (int layer = 0; layer < 2; ++layer)
    ageing.layers.push_back({draw(kHeads * kWidth * 3), draw(kHeads * kWidth), draw(kHeads * kWidth), draw(kHeads)});
  const std::vector<float> f = draw(4 * 3);
  for (int layer = 0; layer < 2; ++layer) {
    for (int head = 0; head < kHeads; ++head) {
      const AgeingLayer& own = ageing.layers[static_cast<size_t>(layer)];
      const std::vector<float> found = ageing_logits(ageing, {.layer = layer, .head = head}, f);
      ASSERT_EQ(found.size(), 4U);
      for (size_t row = 0; row < 4; ++row) {
        double logit = own.b2[head];
        for (int j = 0; j < kWidth; ++j) {
          double sum = own.b1[head * kWidth + j];
          for (int i = 0; i < 3; ++i)
            sum += double{own.w1[(head * kWidth + j) * 3 + i]} * f[row * 3 + i];
          logit += own.w2[head * kWidth + j] * 0.5 * sum * (1 + std::erf(sum / std::sqrt(2.0)));
        }
        EXPECT_NEAR(found[row], logit, 1e-5) << layer << " " << head << " " << row;
      }
    }
  }
}

}  // namespace
}  // namespace kedge::gate
