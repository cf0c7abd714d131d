// A run folder (docs/eval-format.md) in memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kedge/error.h"

namespace kedge::report {

using Number = std::optional<double>;

struct PolicyEntry {
  std::string name;  // as written on the command line
  std::string text;  // resolved
};

struct Config {
  std::string model, model_path, model_sha256, architecture, weight_type;
  Number n_layers, n_kv_heads, head_dim;
  std::vector<std::string> tasks;
  std::string file, file_sha256, reference;
  std::vector<PolicyEntry> policies;
  std::vector<std::string> budgets;
  std::vector<double> lengths, depths;
  Number samples, seed, continuation;
  bool question_aware = false, decode_evicts = false, chat = false;
};

// One row of predictions.csv.
struct Prediction {
  std::string task, sample, policy, budget, metric, prediction, answers, error;
  Number length, depth, question, score, nll, kld_mean;
};

// All cells of (task, policy, budget, length), one entry of metrics.json. No length: all lengths; no depth: all depths.
struct Group {
  std::string task, policy, budget;
  Number length, depth;
  int64_t n = 0, n_errors = 0;
  Number score, score_se, score_lo, score_hi;  // 0..1
  Number keep, kv_live_bytes, kv_peak_bytes, kv_full_bytes, evicted_rows;
  Number ppl, full_ppl, kld_mean, kld_se, kld_p99, kld_max, same_top;
  Number difference, difference_se;  // of the score, to the full cache
};

struct NoiseFloor {
  double kld_mean = 0;  // nats
  Number same_top;
  Number n_windows;
  std::string what;
};

struct Timing {
  std::string policy, budget;
  Number n, prefill_s, decode_s, policy_ms, rss_peak_bytes;
};

struct MemoryPoint {
  double tokens = 0, live_bytes = 0, evicted_rows = 0;
};

// What the journal says of one (task, policy, budget, length).
struct Trace {
  std::string task, policy, budget;
  Number length, n_context, kv_full_bytes;     // of its first cell
  std::vector<std::vector<double>> mean_rows;  // [layer][kv head], over n_rows cells
  int64_t n_rows = 0;
  std::vector<MemoryPoint> memory;  // of the first cell that has one
};

struct Run {
  std::string name, folder;
  Config config;
  std::vector<Prediction> predictions;
  std::vector<Group> groups;
  std::optional<NoiseFloor> noise_floor;
  std::optional<bool> shared_prefix;
  std::optional<std::vector<Timing>> timings;  // nothing: no timings.json
  Number seconds_total;
  std::optional<std::vector<Trace>> traces;  // nothing: no journal.jsonl
  std::string machine;                       // a line from environment.json; may be empty

  bool knows_policy(const std::string& policy) const;  // of config.json, or `none`
};

// Reads config.json, predictions.csv and metrics.json, and where they are there timings.json, journal.jsonl and
// environment.json. Error failed, naming file and line or field: missing, damaged, of another schema, or a policy that
// config.json does not list. A torn last line of the journal is left out.
Result<Run> read_run(const std::string& folder);

// Parts of it, by file.
Status read_predictions(const std::string& path, Run& run);
Status read_journal(const std::string& path, Run& run);

// "a", "b/a": the shortest ends of the folders' paths that differ.
void name_runs(std::vector<Run>& runs);

}  // namespace kedge::report
