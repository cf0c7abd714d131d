#include "train_lm/course.h"

#include <gtest/gtest.h>

#include <set>

namespace kedge::lm {
namespace {

constexpr CourseOptions kOptions{.steps = 1000, .keep = 0.2, .adversarial = 0.25, .rate = 1e-3, .seed = 3};

TEST(Course, LevelsFallLinearlyInTheirInverse) {
  EXPECT_DOUBLE_EQ(plan_step(kOptions, 0).level, kFirstKeep);
  EXPECT_DOUBLE_EQ(plan_step(kOptions, 149).level, kFirstKeep);
  // Halfway between 15 % and 75 % of the steps: halfway between 1 / 0.8 and 1 / 0.2.
  EXPECT_NEAR(1 / plan_step(kOptions, 450).level, (1 / 0.8 + 1 / 0.2) / 2, 0.01);
  EXPECT_DOUBLE_EQ(plan_step(kOptions, 750).level, 0.2);
  EXPECT_DOUBLE_EQ(plan_step(kOptions, 999).level, 0.2);
}

TEST(Course, HalfOfTheStepsAreEasierThanTheLevelAndNoneHarder) {
  int easier = 0;
  double easiest = 0;
  for (int64_t step = 600; step < 1000; ++step) {
    const StepPlan plan = plan_step(kOptions, step);
    EXPECT_GE(plan.keep, plan.level * (1 - 1e-12));
    EXPECT_LE(plan.keep, kFirstKeep * (1 + 1e-12));
    easier += plan.keep > plan.level * 1.001 ? 1 : 0;
    easiest = std::max(easiest, plan.keep);
  }
  EXPECT_NEAR(easier, 200, 40);
  EXPECT_GT(easiest, 0.7);
}

TEST(Course, GatesHardenInTheLastQuarterAndTheRateFalls) {
  EXPECT_EQ(plan_step(kOptions, 749).anneal, 0);
  EXPECT_EQ(plan_step(kOptions, 749).tau, 1);
  EXPECT_NEAR(plan_step(kOptions, 999).anneal, 1, 0.01);
  EXPECT_NEAR(plan_step(kOptions, 999).tau, kLastTau, 0.01);
  EXPECT_LT(plan_step(kOptions, 0).rate, 0.1 * kOptions.rate);
  EXPECT_NEAR(plan_step(kOptions, 40).rate, kOptions.rate, 0.01 * kOptions.rate);
  EXPECT_LT(plan_step(kOptions, 999).rate, 1e-4 * kOptions.rate);
}

TEST(Course, AdversarialStepsAreOfTheSecondHalf) {
  int early = 0;
  int late = 0;
  std::set<uint64_t> seeds;
  for (int64_t step = 0; step < 1000; ++step) {
    const StepPlan plan = plan_step(kOptions, step);
    (step < 500 ? early : late) += plan.adversarial ? 1 : 0;
    seeds.insert(plan.seed);
  }
  EXPECT_EQ(early, 0);
  EXPECT_NEAR(late, 125, 35);
  EXPECT_EQ(seeds.size(), 1000U);
}

TEST(Course, AKeepRateAboveTheFirstIsKept) {
  const CourseOptions easy{.steps = 10, .keep = 0.9};
  for (int64_t step = 0; step < 10; ++step)
    EXPECT_NEAR(plan_step(easy, step).keep, 0.9, 1e-12);
}

TEST(Course, AWalkVisitsEverythingOnceARound) {
  std::set<int64_t> first;
  std::set<int64_t> second;
  bool same = true;
  for (int64_t i = 0; i < 20; ++i) {
    first.insert(walk(20, i, 5));
    second.insert(walk(20, 20 + i, 5));
    same = same && walk(20, i, 5) == walk(20, 20 + i, 5);
  }
  EXPECT_EQ(first.size(), 20U);
  EXPECT_EQ(first, second);
  EXPECT_FALSE(same) << "rounds differ in their order";
}

}  // namespace
}  // namespace kedge::lm
