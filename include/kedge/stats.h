// What a session did and holds. Bytes are of the KV store (rows and their metadata); nothing is estimated.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kedge {

struct Stats {
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = 0;
  double prefill_seconds = 0;
  double decode_seconds = 0;
  double policy_ms = 0;                    // scoring, selection and compaction, included in the two above
  double decode_attention_seconds = 0;     // of decode_seconds: reading K and V rows and the products with them
  int64_t decode_attention_row_bytes = 0;  // K and V payload read in that time
  int64_t kv_live_bytes = 0;
  int64_t kv_peak_bytes = 0;    // never above kv_budget_bytes
  int64_t kv_full_bytes = 0;    // what a full cache of the tokens so far would hold in f16, whatever the types are
  int64_t kv_budget_bytes = 0;  // the hard limit
  int64_t kv_rows = 0;          // rows held, over all layers and kv heads
  int64_t evicted_rows = 0;
  int64_t evictions = 0;         // times the policy ran on a layer
  int64_t policy_fallbacks = 0;  // times the time limit cut a policy short
  double keep = 1;               // rows held / rows of a full cache
  double fill = 1;               // share of live bytes that are rows (the rest is unfilled blocks)
  double sequential = 1;         // share of neighbouring blocks that are neighbours in memory
  std::string policy;            // resolved
  std::string plan;              // the planner's choice in one line
};

// What the store held at one moment, while a prompt is read (after each layer) and after each decoded token.
struct MemoryPoint {
  double tokens = 0;  // read so far; within a prompt layers count as fractions of their chunk
  int64_t kv_live_bytes = 0;
  int64_t evicted_rows = 0;  // since the session began
};

// Kept positions of every layer and kv head.
struct KvMap {
  int64_t n_tokens = 0;
  std::vector<std::vector<std::vector<int32_t>>> layers;  // [layer][kv head][row], ascending
};

}  // namespace kedge
