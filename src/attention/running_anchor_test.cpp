#include "attention/running_anchor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "attention/taps.h"

namespace kedge::attention {
namespace {

TEST(RunningAnchor, MovesWithTheWindow) {
  RunningAnchor anchor(2, 2, 64);
  EXPECT_FALSE(anchor.holds(1, 3));
  anchor.recompute(1, std::vector<float>{1, 2}, 3, true);
  EXPECT_TRUE(anchor.holds(1, 3));
  const float in[2] = {4, -2};
  const float out[2] = {0, 2};
  anchor.move(1, {.newest = in, .oldest = out, .window = 4, .position = 4});
  EXPECT_TRUE(anchor.holds(1, 4));
  EXPECT_EQ(anchor.mean(1), (std::vector<float>{2, 1}));
  EXPECT_EQ(anchor.mean(0), (std::vector<float>{0, 0}));
  EXPECT_EQ(anchor.drift().recomputations, 0) << "a first mean has no drift";
}

TEST(RunningAnchor, DriftIsOneMinusCosine) {
  RunningAnchor anchor(1, 2, 64);
  anchor.recompute(0, std::vector<float>{1, 0}, 0, true);
  anchor.recompute(0, std::vector<float>{1, 1}, 1, false);
  EXPECT_NEAR(anchor.drift().largest, 1 - std::sqrt(0.5), 1e-6);
  anchor.recompute(0, std::vector<float>{2, 2}, 2, false);
  EXPECT_EQ(anchor.drift().recomputations, 2);
  EXPECT_NEAR(anchor.drift().sum, 1 - std::sqrt(0.5), 1e-6) << "a length is no drift";
}

// f16 ends at 65504 and has no bits left below 1e-7: the scale follows.
TEST(RunningAnchor, TheScaleFollowsTheValues) {
  for (const float size : {1e-20F, 1e-9F, 1.0F, 3e6F, 1e20F}) {
    RunningAnchor anchor(1, 3, 64);
    const std::vector<float> mean = {size, -size / 3, size / 100};
    anchor.recompute(0, mean, 0, true);
    for (size_t i = 0; i < 3; ++i)
      EXPECT_NEAR(anchor.mean(0)[i] / mean[i], 1, 1e-3) << size;
  }
  RunningAnchor grows(1, 1, 64);
  grows.recompute(0, std::vector<float>{1}, 0, true);
  const float zero = 0;
  float large = 1e8F;
  grows.move(0, {.newest = &large, .oldest = &zero, .window = 1, .position = 1});
  EXPECT_NEAR(grows.mean(0)[0] / 1e8F, 1, 1e-3);
}

// Through the taps, as a sequence records: the mean of the last W outputs, whatever order a prompt was recorded in.
TEST(RunningAnchor, TapsKeepTheMeanOfTheWindow) {
  constexpr int kWindow = 8;
  constexpr int kDim = 16;
  Taps taps({.n_layers = 1, .window = kWindow, .n_heads = 2, .head_dim = kDim, .running_every = 10});
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> y;
  for (int p = 0; p < 300; ++p) {
    y.emplace_back(kDim);
    for (float& value : y.back())
      value = normal(random) + 0.3F;
  }
  const auto record = [&](int p) {
    for (int head = 0; head < 2; ++head)
      taps.record({.layer = 0, .head = head, .position = p, .q = y[p].data(), .y = y[p].data()});
  };
  for (int p = 19; p > 19 - kWindow; --p)  // the end of a prompt, backwards
    record(p);
  double worst = 0;
  for (int p = 20; p < 300; ++p) {
    record(p);
    const std::vector<float> mean = taps.gather({.layer = 0, .first_head = 0, .group = 2, .n_tokens = p + 1}).running_y;
    ASSERT_EQ(mean.size(), 2U * kDim);
    for (int j = 0; j < kDim; ++j) {
      double exact = 0;
      for (int i = 0; i < kWindow; ++i)
        exact += y[static_cast<size_t>(p - i)][static_cast<size_t>(j)] / static_cast<double>(kWindow);
      worst = std::max(worst, std::abs(exact - mean[static_cast<size_t>(j)]));
    }
  }
  EXPECT_GT(worst, 0) << "f16 rounds";
  EXPECT_LT(worst, 5e-3);
  const AnchorDrift drift = taps.drift();
  EXPECT_EQ(drift.recomputations, 2 * 27);  // at positions 30 40 ... 290; 20 follows a prompt
  EXPECT_LT(drift.largest, 1e-4);
  EXPECT_GT(drift.sum, 0);
}

}  // namespace
}  // namespace kedge::attention
