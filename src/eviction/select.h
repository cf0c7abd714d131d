// Which rows of one layer stay: one function for every policy. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/executor.h"
#include "eviction/policy.h"

namespace kedge::eviction {

// Protected rows of a head by index: those with position < n_sinks, and the newest n_recent rows.
void mark_protected(const KvHeadView& rows, int n_sinks, int n_recent, std::span<uint8_t> is_protected);
// Adds those that are pinned by position: is_protected becomes kPinned.
inline constexpr uint8_t kPinned = 2;
void mark_pinned(const KvHeadView& rows, std::span<const uint8_t> pinned, std::span<uint8_t> is_protected);

// The k rows of one head that stay, ascending: all protected rows first (if they alone exceed k: pinned, then sinks,
// then recent ones; of pinned and of recent rows the newest win), then by score; NaN loses to everything, ties go to
// the earlier position. `chunk` > 1: neighbouring unprotected rows, cut at multiples of `chunk` from row 0, compete by
// their sum; the last chunk is split so that exactly k rows stay (its best rows). Which protected rows are sinks is
// read from their place: the run that starts at row 0 and ends before an unprotected row. k is clamped to 0..rows.
std::vector<int32_t> select(std::span<const float> score, std::span<const uint8_t> is_protected, int64_t k, int chunk);

// Rounds rows per head so that rows + growth fills whole blocks (largest remainder; sum of blocks never exceeds
// blocks_total; heads keep at least `minimum[h]` and at most `available[h]`). Ties go to the lower head. Blocks that
// nobody wished for go to heads that can still fill them. Pure. Minima that need more than blocks_total (the planner
// refuses such budgets) are lowered, largest first, but never below one row per head, even if that exceeds
// blocks_total.
struct RoundInput {
  std::vector<int32_t> rows;       // wanted, per head
  std::vector<int32_t> minimum;    // per head
  std::vector<int32_t> available;  // per head
  int32_t growth = 0;              // rows each head will append before the next eviction
  int64_t blocks_total = 0;        // blocks that the heads may take together, growth included
};
std::vector<int32_t> round_to_blocks(const RoundInput& in);

// Evaluates a whole layer: scores -> allocator -> rounding -> select. Deterministic for any thread count.
struct LayerInput {
  std::vector<HeadInput> heads;
  int n_sinks = 0;
  int n_recent = 0;
  int64_t blocks_total = 0;  // what the layer may hold afterwards, growth included
  int32_t growth = 0;
  int64_t rows_total = 0;  // > 0: keep exactly this many rows and do not round to blocks (experiments at equal rows)
  Scoring scoring = Scoring::all;
  // By position: not 0 = protected wherever a head holds it; empty: none. Whoever pins sees to it that the rows fit:
  // they are never lowered.
  std::span<const uint8_t> pinned = {};
  bool explain = false;  // fill `parts` of what comes back
};
// What must be kept whatever the scores are, lowered to what fits: see decide_layer().
struct Protection {
  int n_sinks = 0;
  int n_recent = 0;
};
int64_t rows_total_of(const LayerInput& in);  // rows that the heads may keep together
Protection affordable_protection(const LayerInput& in);
// The flags of one head, [n_rows].
std::vector<uint8_t> protected_rows(const LayerInput& in, const Protection& protection, const HeadInput& head);

// A layer after its scorer and before any decision. Where the policy's allocator shares one total over layers, rows of
// a chunk have its sum and the scores compare with those of other layers.
struct ScoredLayer {
  std::vector<std::vector<float>> score;           // [kv head][row]
  std::vector<std::vector<uint8_t>> is_protected;  // [kv head][row]
  int chunk = 1;
  std::vector<double> measured;  // [kv head]
  double demand = 1;
  std::vector<std::vector<ScorePart>> parts;  // [kv head], of the scorer; empty: not asked for, or layers do not share
};
LayerScores scores_of(const ScoredLayer& layer);
ScoredLayer score_layer(const Policy& policy, const LayerInput& in, Executor& executor);

struct LayerDecision {
  std::vector<std::vector<int32_t>> keep;          // [kv head] row indices, ascending
  std::vector<std::vector<float>> score;           // [kv head][row]
  std::vector<std::vector<uint8_t>> is_protected;  // [kv head][row]
  std::vector<std::vector<ScorePart>> parts;       // [kv head], the same names in each; empty: not asked for
};
// Heads are scored in parallel on `executor`. Fills HeadInput::is_protected itself. Every head that has rows keeps at
// least one. Protection that does not fit is lowered for all heads alike: recent rows first (the oldest of them), then
// sinks.
LayerDecision decide_layer(const Policy& policy, const LayerInput& in, Executor& executor);

}  // namespace kedge::eviction
