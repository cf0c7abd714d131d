// Schedules by hand-made moments, and what they measure.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "eviction/difficulty.h"
#include "eviction/example.h"
#include "eviction/policy.h"

namespace kedge::eviction {
namespace {

std::unique_ptr<Schedule> schedule_of(const std::string& text) {
  Result<Policy> policy = parse_policy("andpro/" + text, {});
  EXPECT_TRUE(policy.ok()) << text << (policy.ok() ? "" : ": " + policy.error().message);
  return std::move(policy->schedule);
}
bool is_refused(const std::string& text) { return !parse_policy("andpro/" + text, {}).ok(); }

TEST(Schedules, AtLeastSixAreThere) { EXPECT_GE(schedules().size(), 6U); }

TEST(Schedules, StaggeredLayersTakeTurns) {
  const auto schedule = schedule_of("every:n=8");
  for (const int n_layers : {1, 3, 8, 30}) {
    std::vector<int> turns(static_cast<size_t>(n_layers));
    for (int64_t token = 100; token < 108; ++token) {
      int at_once = 0;
      for (int layer = 0; layer < n_layers; ++layer) {
        const LayerMoment at{.layer = layer, .n_layers = n_layers, .n_tokens = token, .period = 8, .used = 1.5};
        if (schedule->at_token(at).is_due) {
          ++turns[static_cast<size_t>(layer)];
          ++at_once;
        }
      }
      EXPECT_LE(at_once, (n_layers + 7) / 8) << n_layers << " layers, token " << token;
    }
    for (const int n : turns)
      EXPECT_EQ(n, 1) << "every layer once in a period of " << n_layers << " layers";
  }
}

TEST(Schedules, EveryWithoutStaggerIsAllLayersAtOnce) {
  const auto schedule = schedule_of("every:n=8,stagger=off");
  for (int64_t token = 0; token < 24; ++token) {
    for (const int layer : {0, 5, 29}) {
      const LayerMoment at{.layer = layer, .n_layers = 30, .n_tokens = token, .period = 8, .used = 1.5};
      EXPECT_EQ(schedule->at_token(at).is_due, token % 8 == 0) << token;
    }
  }
}

TEST(Schedules, EveryHasHysteresis) {
  const auto schedule = schedule_of("every:n=4,high=0.9,low=0.7,stagger=off");
  EXPECT_FALSE(schedule->at_token({.n_tokens = 8, .period = 4, .used = 0.9}).is_due);
  const Cut cut = schedule->at_token({.n_tokens = 8, .period = 4, .used = 0.91});
  EXPECT_TRUE(cut.is_due);
  EXPECT_EQ(cut.keep, 0.7);
  EXPECT_FALSE(schedule->at_token({.n_tokens = 9, .period = 4, .used = 2}).is_due);
  EXPECT_TRUE(schedule->at_token({.n_tokens = 9, .period = 4, .used = 0, .must = true}).is_due);
  EXPECT_TRUE(is_refused("every:high=0.5,low=0.6"));
}

TEST(Schedules, AtAppendIsDueWheneverALayerIsFull) {
  const auto schedule = schedule_of("at-append");
  EXPECT_EQ(schedule->info().every_n, 1);
  EXPECT_FALSE(schedule->at_token({.n_tokens = 7, .used = 1}).is_due);
  EXPECT_TRUE(schedule->at_token({.n_tokens = 7, .used = 1.01}).is_due);
}

TEST(Schedules, PressureCutsDeeperTheFullerTheStoreIs) {
  const auto schedule = schedule_of("pressure:n=10,light=0.7,medium=0.85,heavy=0.95,gap=0.1");
  EXPECT_DOUBLE_EQ(schedule->info().prompt_keep, 0.6);
  const auto at = [&](double pressure, int64_t token) {
    return schedule->at_token({.n_tokens = token, .period = 10, .pressure = pressure});
  };
  EXPECT_FALSE(at(0.69, 10).is_due);
  EXPECT_TRUE(at(0.7, 10).is_due);
  EXPECT_FALSE(at(0.7, 11).is_due) << "the first level waits for the layer's turn";
  EXPECT_TRUE(at(0.85, 11).is_due);
  EXPECT_DOUBLE_EQ(at(0.7, 10).keep, 0.6);
  EXPECT_DOUBLE_EQ(at(0.85, 11).keep, 0.5);
  EXPECT_DOUBLE_EQ(at(0.95, 11).keep, 0.4);
  EXPECT_DOUBLE_EQ(schedule->at_token({.n_tokens = 11, .period = 10, .must = true}).keep, 0.4);
  EXPECT_TRUE(is_refused("pressure:light=0.9,medium=0.8"));
  EXPECT_TRUE(is_refused("pressure:light=0.3,gap=0.1"));
}

TEST(Schedules, BurstNamesItsSteps) {
  EXPECT_EQ(schedule_of("burst:steps=7")->info().burst_steps, 7);
  EXPECT_EQ(schedule_of("every")->info().burst_steps, 0);
}

TEST(Schedules, ContextMapsDifficultyToAShare) {
  const auto schedule = schedule_of("context:min=0.4,max=0.9,easy=0.25,hard=0.75");
  EXPECT_DOUBLE_EQ(schedule->share(0), 0.4);
  EXPECT_DOUBLE_EQ(schedule->share(0.25), 0.4);
  EXPECT_DOUBLE_EQ(schedule->share(0.5), 0.65);
  EXPECT_DOUBLE_EQ(schedule->share(0.9), 0.9);
  EXPECT_EQ(schedule->measure(), Difficulty::entropy);
  EXPECT_EQ(schedule_of("context:measure=error")->measure(), Difficulty::error);
  EXPECT_TRUE(is_refused("context:min=0.9,max=0.5"));
  EXPECT_TRUE(is_refused("context:easy=0.9,hard=0.5"));
  const auto step = schedule_of("context:min=0.4,max=0.9,easy=0.5,hard=0.5");
  EXPECT_DOUBLE_EQ(step->share(0.49), 0.4);
  EXPECT_DOUBLE_EQ(step->share(0.5), 0.9);
}

TEST(Schedules, AScheduleThatMeasuresNeedsQueries) {
  EXPECT_EQ(parse_policy("streaming/context", {})->needs().window, kDifficultyQueries);
  EXPECT_EQ(parse_policy("streaming/every", {})->needs().window, 0);
  EXPECT_EQ(parse_policy("andpro/context", {})->needs().window, 32);
  EXPECT_EQ(parse_policy("none/context", {})->needs().window, 0);
}

// The example's two queries have the logits 2 0 1 0 1 - and 2 1 1 0 2 1.
TEST(Difficulty, IsEntropyOrLostAttention) {
  const ExampleHead example;
  double entropy = 0;
  double lost = 0;
  for (const std::vector<double>& logits : {std::vector<double>{2, 0, 1, 0, 1}, {2, 1, 1, 0, 2, 1}}) {
    double total = 0;
    for (const double l : logits)
      total += std::exp(l);
    std::vector<double> a;
    for (const double l : logits) {
      a.push_back(std::exp(l) / total);
      entropy -= a.back() * std::log(a.back()) / std::log(6.0) / 2;
    }
    std::sort(a.begin(), a.end());
    for (size_t i = 0; i + 3 < a.size(); ++i)  // all but the best ceil(0.5 * 6)
      lost += a[i] / 2;
  }
  EXPECT_NEAR(difficulty(Difficulty::entropy, example.input(), 0.5), entropy, 1e-4);
  EXPECT_NEAR(difficulty(Difficulty::error, example.input(), 0.5), lost, 1e-4);
  EXPECT_NEAR(difficulty(Difficulty::error, example.input(), 1), 0, 1e-6);
  HeadInput blind = example.input();
  blind.n_window = 0;
  EXPECT_EQ(difficulty(Difficulty::entropy, blind, 0.5), 1);
}

}  // namespace
}  // namespace kedge::eviction
