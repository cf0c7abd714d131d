// What a session did and holds. Bytes are of the KV store (rows and their metadata); nothing is estimated.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kedge/protection.h"

namespace kedge {

struct Stats {
  int64_t prompt_tokens = 0, generated_tokens = 0;
  double prefill_seconds = 0, decode_seconds = 0;
  double policy_ms = 0;                    // scoring, selection and compaction, included in the two above
  double decode_attention_seconds = 0;     // of decode_seconds: reading K and V rows and the products with them
  int64_t decode_attention_row_bytes = 0;  // K and V payload read in that time
  int64_t kv_live_bytes = 0;
  int64_t kv_peak_bytes = 0;    // never above kv_budget_bytes
  int64_t kv_full_bytes = 0;    // what a full cache of the tokens so far would hold in f16, whatever the types are
  int64_t kv_budget_bytes = 0;  // the hard limit
  int64_t kv_rows = 0;          // rows held, over all layers and kv heads
  int64_t evicted_rows = 0;
  int64_t discarded_rows = 0;          // of those: by the gate's threshold, ahead of the budget
  double gate_threshold = 0;           // keep probability below which rows go now; 0: no gate discards
  int64_t evictions = 0;               // times the policy ran on a layer
  int64_t policy_fallbacks = 0;        // of those: layers that the time limit left to sinks and recent rows
  double keep = 1;                     // rows held / rows of a full cache
  double fill = 1;                     // share of live bytes that are rows (the rest is unfilled blocks)
  double sequential = 1;               // share of neighbouring blocks that are neighbours in memory
  int64_t policy_fallback_rounds = 0;  // evictions (of one or more layers) in which that happened
  double decode_p50_ms = 0;            // time of a decoded token, evictions included: median, 99 %, slowest
  double decode_p99_ms = 0;
  double decode_max_ms = 0;
  double budget_share = 1;  // share of their blocks that layers may use, mean; below 1 where the schedule says so
  double difficulty = 0;    // of the context, 0..1, mean over layers; 0 unless the schedule measures it
  int64_t anchor_recomputations = 0;              // of a query head's running anchor (andpro:anchor=running)
  double anchor_drift = 0, anchor_drift_max = 0;  // 1 - cosine that had come of its f16 by then: mean, largest
  // Tokens protected now, each in every layer and kv head; sinks and recent rows are not counted.
  int64_t protected_spans = 0;
  int64_t protected_phrases = 0;
  int64_t protected_special = 0;
  int64_t protected_domain = 0;
  int64_t protected_dropped = 0;  // of spans and phrases, unprotected because they exceed the budget (`oldest`)
  std::string policy;             // resolved
  std::string plan;               // the planner's choice in one line
};

// What the store held at one moment, while a prompt is read (after each layer) and after each decoded token.
struct MemoryPoint {
  double tokens = 0;  // read so far; within a prompt layers count as fractions of their chunk
  int64_t kv_live_bytes = 0;
  int64_t evicted_rows = 0;   // since the session began
  double gate_threshold = 0;  // Stats::gate_threshold
};

// Kept positions of every layer and kv head.
struct KvMap {
  int64_t n_tokens = 0;
  std::vector<std::vector<std::vector<int32_t>>> layers;  // [layer][kv head][row], ascending
  std::vector<ProtectedBy> protected_by;                  // [n_tokens]; empty where nothing is asked to be protected
};

}  // namespace kedge
