// Why rows stayed or went: counters per layer and kv head, and what the policy last said of each token's rows.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kedge/model.h"

namespace kedge {

struct HeadStats {
  int64_t rows = 0;            // held now
  int64_t evicted = 0;         // tokens read that are not held
  int64_t evictions = 0;       // times the head lost rows
  double mean_kept_score = 0;  // of the rows that its last eviction kept and did not protect; 0: there were none
  double min_kept_score = 0;
};
struct LayerStats {
  int64_t evictions = 0;  // times the policy ran on the layer
  double policy_ms = 0;   // of all its heads, which are scored at once
  std::vector<HeadStats> heads;
};

struct ExplainOptions {
  int n = 10;      // best and worst tokens
  int layer = -1;  // -1: all layers
  int head = -1;   // kv head; -1: all heads
};

// A token over the heads asked for. Numbers are means over those heads whose evictions judged the token's row, as they
// last did; rows that were protected then were not judged.
struct ExplainedToken {
  int32_t position = 0;
  Token token = 0;
  double rank = 0;                           // among the rows judged beside it, by score: 1 best, 0 worst
  double score = 0;                          // comparable within a head only
  std::vector<double> parts;                 // of Explanation::part_names; NaN: no head said
  int n_judged = 0;                          // heads
  std::vector<std::pair<int, int>> held_by;  // {layer, kv head} that hold its row now
};

struct Explanation {
  int64_t n_tokens = 0;
  int64_t n_judged = 0;  // tokens that some head has judged; 0: nothing was evicted
  int n_layers = 0;
  int n_heads = 0;  // (layer, kv head) pairs asked for
  std::vector<std::string> part_names;
  // By rank, ties by position. No token is in both.
  std::vector<ExplainedToken> best;   // the best first
  std::vector<ExplainedToken> worst;  // the worst first
};

}  // namespace kedge
