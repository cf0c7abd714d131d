// What a schedule leads to while a sequence runs: nothing here decides, it is what was measured and counted.
#pragma once

#include <vector>

#include "session/policy_clock.h"
#include "session/token_times.h"

namespace kedge::session {

struct ScheduleState {
  PolicyClock clock;
  TokenTimes token_times;  // of decode()
  // By layer, of its last eviction; filled only for schedules that measure difficulty.
  std::vector<float> difficulty;
  std::vector<float> share;
  // By layer: rows of positions below this have scores of the policy, and were last scored when the sequence had so
  // many tokens. 0: no scores.
  std::vector<int64_t> scored_at;
  double gate_threshold = -1;  // keep probability below which rows are discarded; below 0: none yet
};

}  // namespace kedge::session
