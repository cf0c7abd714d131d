// Eviction of a timeline's layers: decide (eviction/select.h, pure), then compact (kv/store.h, the one mutator).
#include <algorithm>
#include <numeric>

#include "base/clock.h"
#include "eviction/window_scorer.h"
#include "session/observations.h"
#include "session/timeline.h"

namespace kedge::session {
namespace {

// While tokens are decoded a layer that keeps its share divides only among its heads, and its policy looks at this much
// of the window: a quarter of it, so that an eviction costs about what andpro's does (Caching::queries).
constexpr int kTurnQueries = 8;

}  // namespace

// Whether the layer already holds no more than the target allows.
bool Timeline::within(int layer, const EvictionTarget& target) const {
  const int n_kv_heads = engine_.model->hyper().n_kv_heads;
  int64_t rows = 0;
  int64_t blocks = 0;
  for (int head = 0; head < n_kv_heads; ++head) {
    const int64_t n = store_->n_rows(sequence_, layer, head);
    rows += n;
    blocks += (n + target.growth + kBlockRows - 1) / kBlockRows;
  }
  return target.rows_exact > 0 ? rows <= target.rows_exact : blocks <= target.blocks;
}

// n_tokens: the length of the sequence as scorers see it, with the chunk that is being read.
eviction::LayerInput Timeline::layer_input(int layer, const EvictionTarget& target, int64_t n_tokens,
                                           std::vector<attention::ObservedWindow>& windows) const {
  const model::HyperParams& hyper = engine_.model->hyper();
  const double budget_rows = rows_of(target, hyper.n_kv_heads);
  eviction::LayerInput in{.n_sinks = policy_.sinks.rows(budget_rows),
                          .n_recent = policy_.recent.rows(budget_rows),
                          .blocks_total = target.blocks,
                          .growth = target.growth,
                          .rows_total = target.rows_exact};
  if (text_->is_active())
    in.pinned = text_->pinned(head_room(target, n_tokens)).by;
  windows.resize(static_cast<size_t>(hyper.n_kv_heads));
  for (int head = 0; head < hyper.n_kv_heads; ++head) {
    attention::ObservedWindow& window = windows[static_cast<size_t>(head)];
    window = taps_.gather({.layer = layer,
                           .first_head = head * hyper.group(),
                           .group = hyper.group(),
                           .n_tokens = static_cast<int32_t>(n_tokens)});
    in.heads.push_back({.layer = layer,
                        .head = head,
                        .rows = view(layer, head),
                        .q = window.q.data(),
                        .y = window.y.data(),
                        .query_positions = window.positions.data(),
                        .n_window = static_cast<int>(window.positions.size()),
                        .group = hyper.group(),
                        .scale = hyper.attention_scale,
                        .n_tokens = static_cast<int32_t>(n_tokens),
                        .is_protected = {},
                        .seed = options_.seed,
                        .kernels = engine_.kernels,
                        .n_layers = hyper.n_layers});
    in.heads.back().running_y = window.running_y;
  }
  return in;
}

Status Timeline::evict_layer(int layer, const EvictionTarget& mean, int64_t n_tokens) {
  const bool is_reading = n_tokens > n_tokens_;
  if (shares_layers() && (is_reading || !keeps_shares()))
    return join_layer(layer, mean, n_tokens);
  const EvictionTarget asked = layer_target(mean, layer);
  const bool is_measured = policy_.schedule->measure() != eviction::Difficulty::none;
  if (!is_measured && within(layer, asked))
    return {};
  if (Status status = protection_fits(asked, n_tokens); !status)
    return status;
  last_target_ = asked;
  const Stopwatch watch;
  std::vector<attention::ObservedWindow> windows;
  eviction::LayerInput in = layer_input(layer, asked, n_tokens, windows);
  if (is_measured) {
    const EvictionTarget target = measured_target(asked, in);
    if (within(layer, target)) {
      counters_.policy_ms += watch.milliseconds();
      return {};
    }
    in = layer_input(layer, target, n_tokens, windows);
  }
  if (Status status = prepare_eviction(asked); !status)
    return status;
  LayerHistory history;
  observations_->add_pending(layer, taps_, n_tokens);
  observations_->attach(layer, policy_.needs(), tokens_, history, in);
  CachedScores cached;
  if (shares_layers()) {  // what its rows have are an allocator's numbers, not a scorer's
    for (eviction::HeadInput& head : in.heads)
      head = policy_.scorer->needs_whole_window() ? head : eviction::last_queries(head, kTurnQueries);
  } else {
    in.scoring = take_cached(in, cached);
  }
  const bool late = falls_back(in);
  if (late)
    in.scoring = eviction::Scoring::all;
  in.explain = ledger_.explains();
  if (watch_)
    watch_(in);
  const eviction::LayerDecision decision = eviction::decide_layer(late ? fallback_ : policy_, in, *engine_.compute);
  kv::KeepPlan keep;
  for (size_t head = 0; head < decision.keep.size(); ++head) {
    store_->set_scores(sequence_, layer, static_cast<int>(head), decision.score[head]);
    keep.heads.push_back({.layer = layer, .head = static_cast<int>(head), .rows = decision.keep[head]});
  }
  ledger_.record(layer, in, decision);  // before the compaction ends the views of `in`
  const Status status = store_->compact(sequence_, keep, *engine_.compute);
  note_scored(in, !late);
  if (shares_layers())
    layer_notes_[static_cast<size_t>(layer)].n_tokens = n_tokens;
  ++counters_.evictions;
  count_fallbacks(late ? 1 : 0);
  evicted_until_ = n_tokens;
  const double ms = watch.milliseconds();
  counters_.policy_ms += ms;
  ledger_.add_ms(layer, ms);
  if (!late && schedule_.clock.is_limited())
    schedule_.clock.measured(in.scoring, ms, rows_of(in));
  return status;
}

Status Timeline::evict_all(const EvictionTarget& target) {
  store_->release_reserved(sequence_);
  begin_round();
  if (shares_layers())
    return divide_all(target);
  for (const int layer : eviction_order(target)) {
    if (Status status = evict_layer(layer, target, n_tokens_); !status)
      return status;
  }
  return {};
}

}  // namespace kedge::session
