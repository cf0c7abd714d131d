// One row of the table: what was run and what was measured.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/plan.h"

namespace kedge::bench {

struct ModelFacts {
  std::string path;
  std::string type;  // "llama 135M q4_1"
  int64_t size_bytes = 0;
  int64_t n_params = 0;
  std::string kernels;
  std::string prompt_weights;
  std::string mmap;   // on | off
  int n_threads = 0;  // resolved
};

struct Row {
  ModelFacts model;
  Setup setup;
  Test test;
  Variant variant;
  std::string resolved_policy;
  std::string test_time;  // UTC, ISO 8601: when the row's first repetition began

  std::vector<double> seconds;        // per repetition, of n_timed() tokens
  std::vector<double> llama_seconds;  // the same repetitions; empty without --vs

  int64_t kv_budget_bytes = 0;  // the hard limit
  int64_t kv_peak_bytes = 0;
  int64_t rss_peak_bytes = 0;
  bool rss_of_row = false;  // false: the kernel would not reset the mark, it is the whole process's

  double policy_ms = 0;                // mean per repetition, of the timed part
  double attention_seconds = 0;        // decoding, all repetitions
  int64_t attention_row_bytes = 0;     // K and V payload read in that time
  double read_gb_s = 0;                // plain reading, same threads, same run
  std::vector<double> rates() const;   // tokens per second, by repetition
  std::vector<double> ratios() const;  // llama.cpp's seconds over ours, by repetition
  std::vector<double> llama_rates() const;
  double attention_gb_s() const;  // 0: nothing was decoded
};

}  // namespace kedge::bench
