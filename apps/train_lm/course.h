// What each step of a training asks of the gates: the curriculum. Pure: a step's plan depends on the options and its
// number alone, so that a training that was stopped goes on as if it had not been.
#pragma once

#include <cstdint>

namespace kedge::lm {

struct CourseOptions {
  int64_t steps = 1;
  double keep = 0.25;         // the mean keep rate it ends at
  double adversarial = 0.25;  // share of the steps of the second half that are of built passages
  double rate = 1e-3;         // highest of the learning rates
  uint64_t seed = 1;
};

struct StepPlan {
  double level = 1;   // the hardest keep rate so far
  double keep = 1;    // of this step: the level, or easier
  double tau = 1;     // temperature of the gates
  double anneal = 0;  // 0: soft, 1: hard
  double rate = 0;
  bool adversarial = false;
  uint64_t seed = 0;
};

inline constexpr double kFirstKeep = 0.8;
inline constexpr double kFirstShare = 0.15;  // of the steps, at kFirstKeep
inline constexpr double kHardShare = 0.25;   // of the steps, the last ones: soft gates become hard
inline constexpr double kLastTau = 0.1;

// kFirstKeep first, then down to options.keep linearly in 1 / keep, which is reached when gates begin to harden. Every
// other step draws an easier rate between the level and kFirstKeep, so that one order of rows serves all rates.
StepPlan plan_step(const CourseOptions& options, int64_t step);

// Number `index` of a walk over n things: all of them in an order of its own, again and again.
int64_t walk(int64_t n, int64_t index, uint64_t seed);

}  // namespace kedge::lm
