// The regression gate: a run's quality against an earlier run's.
#pragma once

#include <string>

#include "eval/records.h"
#include "kedge/error.h"

namespace kedge::eval {

struct GateLimits {
  double max_drop = 0.02;      // of a mean score
  double max_kld_rise = 0.25;  // of a mean KLD, as a share of the baseline's
};

struct GateResult {
  std::string lines;  // one a group: what was, what is
  int n_compared = 0;
  int n_failed = 0;
};

// Compares the groups that pool depths and lengths: (task, policy, budget) of both metrics.json. Error usage: a group
// of the baseline that the run lacks, or nothing in common.
Result<GateResult> compare_to_baseline(const Json& metrics, const Json& baseline, const GateLimits& limits);

}  // namespace kedge::eval
