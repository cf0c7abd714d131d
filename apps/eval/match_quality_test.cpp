#include "eval/match_quality.h"

#include <gtest/gtest.h>

#include <cmath>

namespace kedge::eval {
namespace {

// Bisects a policy whose sample i passes from the share `from[i]` on.
std::vector<Tried> bisect(const std::vector<double>& from, const MatchTarget& target, int& n_steps) {
  const std::vector<double> full(from.size(), 1.0);
  std::vector<Tried> tried;
  n_steps = 0;
  for (double share = next_share(tried, full, target); share > 0; share = next_share(tried, full, target)) {
    Tried one{.share = share};
    for (const double threshold : from)
      one.quality.push_back(share >= threshold ? 1 : 0);
    tried.push_back(one);
    if (++n_steps > 40)
      break;
  }
  return tried;
}

TEST(MatchQuality, FindsTheThresholdWithinItsStep) {
  for (const double threshold : {0.013, 0.04, 0.2, 0.77}) {
    const std::vector<double> from(20, threshold);
    int n_steps = 0;
    const std::vector<Tried> tried = bisect(from, {.quality = 0.99}, n_steps);
    EXPECT_LE(n_steps, 8) << threshold;
    const Match match = summarize(tried, std::vector<double>(20, 1.0), {.quality = 0.99}, 1);
    EXPECT_GE(match.share, threshold - 5e-4);
    EXPECT_LE(match.share, threshold * kMatchStep + 1e-3) << threshold;
    EXPECT_EQ(match.quality, 1);
    EXPECT_EQ(match.share_lo, match.share);
    EXPECT_EQ(match.share_hi, match.share);
  }
}

TEST(MatchQuality, AlwaysPassingEndsAtTheLeastShareAndNeverPassingAtOne) {
  int n_steps = 0;
  const std::vector<double> full(10, 1.0);
  const auto easy = bisect(std::vector<double>(10, 0.0), {.quality = 0.99}, n_steps);
  EXPECT_NEAR(summarize(easy, full, {.quality = 0.99}, 1).share, kLeastShare, 1e-3);
  const auto hard = bisect(std::vector<double>(10, 2.0), {.quality = 0.99}, n_steps);
  EXPECT_EQ(summarize(hard, full, {.quality = 0.99}, 1).share, 1);
}

TEST(MatchQuality, SpreadSamplesGiveAnInterval) {
  std::vector<double> from;
  for (int i = 0; i < 40; ++i)
    from.push_back(0.1 + 0.01 * i);
  int n_steps = 0;
  const auto tried = bisect(from, {.quality = 0.5}, n_steps);
  const Match match = summarize(tried, std::vector<double>(40, 1.0), {.quality = 0.5}, 7);
  EXPECT_NEAR(match.share, 0.29, 0.02);
  EXPECT_LE(match.share_lo, match.share);
  EXPECT_GE(match.share_hi, match.share);
  EXPECT_LT(match.quality_lo, match.quality);
  EXPECT_GT(match.quality_hi, match.quality);
}

TEST(MatchQuality, DivergencesMustStayBelow) {
  const std::vector<double> full(5, 0.0);
  const MatchTarget target{.kld = 0.1};
  std::vector<Tried> tried;
  for (double share = next_share(tried, full, target); share > 0; share = next_share(tried, full, target))
    tried.push_back({.share = share, .quality = std::vector<double>(5, 0.02 / share)});
  const Match match = summarize(tried, full, target, 1);
  EXPECT_GE(match.share, 0.2 - 1e-9);
  EXPECT_LE(match.share, 0.2 * kMatchStep + 1e-3);
  EXPECT_LE(match.quality, 0.1);
}

}  // namespace
}  // namespace kedge::eval
