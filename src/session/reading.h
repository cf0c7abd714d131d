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

// What every head of a layer must be able to hold, whatever part of a share is asked for.
struct LeastRows {
  int n_kv_heads = 1;
  int64_t rows = 1;  // of a head: protected by number (fixed_rows()), beside the growth
};
// The target with `keep` of its blocks, but not below these rows and the growth.
EvictionTarget scaled(EvictionTarget target, double keep, const LeastRows& least);

}  // namespace kedge::session
