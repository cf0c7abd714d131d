// In which chunks a prompt is read, and what its layers are cut to after each. Pure arithmetic.
#pragma once

#include <cstdint>
#include <vector>

#include "kv/store.h"
#include "session/planner.h"

namespace kedge::session {

struct ReadStep {
  int64_t n_tokens = 0;
  bool evict = false;
  EvictionTarget target;  // after the chunk
};
struct Reading {
  bool cut_first = false;  // to `before`, so that the first chunk has room
  EvictionTarget before;
  std::vector<ReadStep> steps;
};

struct ReadRequest {
  int64_t n_tokens = 0;  // at least 1
  int n_batch = 2048;
  bool fits = false;     // everything fits beside what is held
  bool planned = false;  // the prompt that the plan was made for
  int burst_steps = 0;   // ScheduleInfo::burst_steps
};
Reading make_reading(const Plan& plan, const kv::StoreShape& shape, const ReadRequest& request);

// The target with `keep` of its blocks, but with room for a row and the growth in every head.
EvictionTarget scaled(EvictionTarget target, double keep, int n_kv_heads);

}  // namespace kedge::session
