#include "train_lm/course.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <string>
#include <vector>

#include "eval/random.h"

namespace kedge::lm {
namespace {

constexpr double kWarmShare = 0.03;  // of the steps: the learning rate rises

double uniform(eval::Random& random) { return static_cast<double>(random.next() >> 11) * 0x1p-53; }

}  // namespace

StepPlan plan_step(const CourseOptions& options, int64_t step) {
  eval::Random random(options.seed, "step " + std::to_string(step));
  const double at = (static_cast<double>(step) + 0.5) / static_cast<double>(options.steps);
  StepPlan plan;
  plan.seed = random.next();
  const double first = std::max(kFirstKeep, options.keep);
  const double down = std::clamp((at - kFirstShare) / (1 - kHardShare - kFirstShare), 0.0, 1.0);
  plan.level = 1 / (1 / first + (1 / options.keep - 1 / first) * down);
  plan.keep = uniform(random) < 0.5 ? plan.level : plan.level * std::pow(first / plan.level, uniform(random));
  plan.anneal = std::clamp((at - (1 - kHardShare)) / kHardShare, 0.0, 1.0);
  plan.tau = std::pow(kLastTau, plan.anneal);
  plan.rate = options.rate * std::min(1.0, at / kWarmShare) * (1 + std::cos(std::numbers::pi * at)) / 2;
  plan.adversarial = uniform(random) < options.adversarial && at > 0.5;
  return plan;
}

int64_t walk(int64_t n, int64_t index, uint64_t seed) {
  eval::Random random(seed, "walk " + std::to_string(index / n));
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  random.shuffle(order);
  return order[static_cast<size_t>(index % n)];
}

}  // namespace kedge::lm
