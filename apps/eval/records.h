// What one cell gave, as it stands in the journal and in predictions.csv (docs/eval-format.md).
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kedge/error.h"

namespace kedge::eval {

using Json = nlohmann::ordered_json;
using Value = std::optional<double>;

struct Row {  // one question, or one scored continuation
  std::string task;
  std::string sample;
  int64_t length = 0;
  Value depth;
  int64_t seed = 0;
  std::string policy;
  std::string budget;
  int64_t question = 0;
  std::string metric;
  Value score;
  std::string prediction;
  std::vector<std::string> answers;
  int64_t n_context = 0;
  int64_t n_generated = 0;
  Value nll;
  Value full_nll;
  Value kld_mean;
  Value kld_p99;
  Value kld_max;
  Value same_top;
  double keep = 1;
  int64_t kv_live_bytes = 0;
  int64_t kv_peak_bytes = 0;
  int64_t kv_full_bytes = 0;
  int64_t evicted_rows = 0;
  double prefill_s = 0;
  double decode_s = 0;
  double policy_ms = 0;
  std::string error;

  // Calls visit(name, field) for every column, in the order of predictions.csv.
  template <typename Self, typename Visit>
  static void columns(Self& row, Visit&& visit) {
    visit("task", row.task);
    visit("sample", row.sample);
    visit("length", row.length);
    visit("depth", row.depth);
    visit("seed", row.seed);
    visit("policy", row.policy);
    visit("budget", row.budget);
    visit("question", row.question);
    visit("metric", row.metric);
    visit("score", row.score);
    visit("prediction", row.prediction);
    visit("answers", row.answers);
    visit("n_context", row.n_context);
    visit("n_generated", row.n_generated);
    visit("nll", row.nll);
    visit("full_nll", row.full_nll);
    visit("kld_mean", row.kld_mean);
    visit("kld_p99", row.kld_p99);
    visit("kld_max", row.kld_max);
    visit("same_top", row.same_top);
    visit("keep", row.keep);
    visit("kv_live_bytes", row.kv_live_bytes);
    visit("kv_peak_bytes", row.kv_peak_bytes);
    visit("kv_full_bytes", row.kv_full_bytes);
    visit("evicted_rows", row.evicted_rows);
    visit("prefill_s", row.prefill_s);
    visit("decode_s", row.decode_s);
    visit("policy_ms", row.policy_ms);
    visit("error", row.error);
  }
};

struct MemorySample {  // [tokens, live_bytes, evicted_rows]
  double tokens = 0;
  int64_t kv_live_bytes = 0;
  int64_t evicted_rows = 0;
};

struct CellRecord {
  std::string cell;  // task|sample|policy|budget
  std::vector<Row> rows;
  std::vector<std::vector<int64_t>> rows_per_head;  // [layer][kv head]
  std::vector<MemorySample> memory;                 // empty where it was not traced
  int64_t rss_peak_bytes = 0;
  double seconds = 0;  // wall time of the cell; the first cell of a sample has the shared prompt in it
};

Json to_json(const CellRecord& record);
// Error failed: what is missing or of another type.
Result<CellRecord> cell_record(const Json& json);

// predictions.csv, header and rows (RFC 4180, lines end in \n).
std::string predictions_csv(std::span<const CellRecord> records);

// Invalid UTF-8 replaced by U+FFFD, as all text in the files is.
std::string to_line(const Json& json);    // one line, no newline
std::string to_pretty(const Json& json);  // two spaces, closing newline

}  // namespace kedge::eval
