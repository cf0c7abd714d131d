// From the rows of a run to metrics.json and timings.json: pure functions of config and records.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "eval/records.h"
#include "eval/statistics.h"

namespace kedge::eval {

// All cells of (task, policy, budget, length, depth); an empty length or depth pools over it.
struct Group {
  std::string task;
  std::string policy;
  std::string budget;
  Value length;
  Value depth;
  int64_t n = 0;  // samples with a score
  int64_t n_errors = 0;
  Estimate score;
  Estimate difference;  // of the score to `none`, over the samples that both have; n = 0 where there is none
  Estimate kld;
  Value kld_p99;  // mean over samples
  Value kld_max;
  Value same_top;
  Value ppl;
  Value full_ppl;
  double keep = 0;
  double kv_live_bytes = 0;
  double kv_peak_bytes = 0;  // the largest
  double kv_full_bytes = 0;
  double evicted_rows = 0;
};

// In the order in which tasks, policies, budgets, lengths and depths first appear in the records.
std::vector<Group> make_groups(std::span<const CellRecord> records, uint64_t seed);

Json to_json(const Group& group);
Json metrics_json(const Json& config, std::span<const CellRecord> records, const Json& noise_floor, bool shared_prefix);
Json timings_json(std::span<const CellRecord> records);

}  // namespace kedge::eval
