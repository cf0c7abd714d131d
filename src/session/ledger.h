// What evictions said of rows: counters per layer and kv head always, and where a session explains, every position's
// last judgement. Diagnosis only, outside the budget: 8 bytes and 4 per part for each token of each head.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "eviction/select.h"
#include "kedge/explain.h"
#include "kedge/stats.h"

namespace kedge::session {

class Ledger {
 public:
  Ledger(int n_layers, int n_kv_heads, bool explains);

  // One eviction of a layer: the rows as they were before, and what was decided about them.
  void record(int layer, const eviction::LayerInput& in, const eviction::LayerDecision& decision);
  // What made up the scores of a layer's rows, where they were scored before the decision; nothing where a session does
  // not explain. parts: [kv head].
  void record_parts(int layer, const eviction::LayerInput& in, std::span<const std::vector<eviction::ScorePart>> parts);
  void add_ms(int layer, double ms) { layers_[static_cast<size_t>(layer)].ms += ms; }
  // Positions from n_tokens on no longer exist.
  void forget(int64_t n_tokens);

  bool explains() const { return explains_; }
  // `held`: the rows that the session holds now.
  std::vector<LayerStats> layer_stats(const KvMap& held) const;
  // tokens i32 [held.n_tokens], by position. Options in range.
  Explanation explain(const ExplainOptions& options, const KvMap& held, std::span<const Token> tokens) const;

 private:
  struct Head {  // by position; rank < 0: never judged
    std::vector<float> rank;
    std::vector<float> score;
    std::vector<std::vector<float>> parts;  // [part][position]; NaN: not said
    int64_t evictions = 0;
    double mean_kept = 0;
    double min_kept = 0;
  };
  struct Layer {
    int64_t evictions = 0;
    double ms = 0;
    std::vector<Head> heads;
  };
  struct Chosen {  // a head asked for
    int layer = 0;
    int head = 0;
  };
  void count(Head& head, const eviction::LayerDecision& decision, size_t h) const;
  void judge(Head& head, const eviction::HeadInput& in, const eviction::LayerDecision& decision, size_t h);
  std::vector<ExplainedToken> judged(std::span<const Chosen> heads, std::span<const Token> tokens) const;
  std::vector<Chosen> chosen(const ExplainOptions& options) const;

  bool explains_;
  std::vector<Layer> layers_;
  std::vector<std::string> part_names_;
};

}  // namespace kedge::session
