// Rows that a learned gate discards ahead of the budget (eviction/gate_mode.h): after a layer has read a chunk, and in
// turns while tokens are decoded.
#include <algorithm>

#include "base/clock.h"
#include "eviction/turns.h"
#include "session/timeline.h"

namespace kedge::session {
namespace {

constexpr int kDiscardPeriod = 64;  // tokens between two looks at a layer

}  // namespace

Result<eviction::GateMode> session_gate_mode(const Engine& engine, const SessionOptions& options,
                                             const eviction::Policy& policy) {
  Result<eviction::GateMode> mode = eviction::parse_gate_mode(options.gate_mode);
  if (!mode || engine.gate || !recorded_needs(options, policy).gate)
    return mode;
  const std::string who = mode->discards() ? "gate mode '" + mode->text : "policy '" + policy.text;
  return Error{ErrorCode::usage, who + "' asks a learned gate, and " +
                                     (engine.ageing == nullptr ? "none was loaded: --gate FILE"
                                                               : "the one that is loaded says nothing of new rows")};
}

// Sets the threshold for what is discarded next, for the memory that is free when n more tokens have come in: of the
// pool, so that sequences that share it share its pressure.
void Timeline::follow_pressure(int64_t n_tokens) {
  const kv::StoreStats held = store_->stats();
  const model::HyperParams& hyper = engine_.model->hyper();
  const int64_t coming = kv::bytes_for_rows(store_->shape(), n_tokens, int64_t{hyper.n_layers} * hyper.n_kv_heads);
  const auto budget = static_cast<double>(held.budget_bytes);
  const double free = eviction::free_when_read(gate_mode_, {.used = static_cast<double>(held.live_bytes) / budget,
                                                            .coming = static_cast<double>(coming) / budget,
                                                            .curve = engine_.gate_curve});
  schedule_.gate_threshold = eviction::next_threshold(gate_mode_, schedule_.gate_threshold, free);
}

// Rows of a head that stay whatever the gate says. What lies before a mark is left as it is: it would have to be copied
// to lose rows.
std::vector<uint8_t> Timeline::beyond_the_gate(const KvHeadView& rows, int64_t n_tokens) const {
  const EvictionTarget& target = plan_.decoding;
  const double budget_rows =
      target.blocks > 0 ? rows_of(target, engine_.model->hyper().n_kv_heads) : static_cast<double>(n_tokens);
  std::vector<uint8_t> flags(static_cast<size_t>(rows.n_rows));
  eviction::mark_protected(rows, options_.sinks.empty() ? 0 : policy_.sinks.rows(budget_rows),
                           options_.recent.empty() ? 0 : policy_.recent.rows(budget_rows), flags);
  if (text_->is_active())
    eviction::mark_pinned(rows, pinned_at(n_tokens).by, flags);
  const int64_t first_free = std::max<int64_t>(gate_mode_.sinks, mark_ ? mark_->at.n_tokens : 0);
  for (int32_t row = 0; row < rows.n_rows; ++row) {
    const int64_t position = rows.position(row);
    if (position < first_free || position >= n_tokens - gate_mode_.window)
      flags[static_cast<size_t>(row)] = std::max<uint8_t>(flags[static_cast<size_t>(row)], 1);
  }
  return flags;
}

// n_tokens: the length of the sequence with the chunk that is being read.
Status Timeline::discard_layer(int layer, int64_t n_tokens) {
  const Stopwatch watch;
  kv::KeepPlan plan;
  int64_t n_gone = 0;
  for (int head = 0; head < engine_.model->hyper().n_kv_heads; ++head) {
    const KvHeadView rows = view(layer, head);
    const std::vector<float> logit = store_->notes(sequence_, layer, head, gate_column_);
    const std::vector<uint8_t> flags = beyond_the_gate(rows, n_tokens);
    std::vector<int32_t> keep = eviction::open_rows(
        gate_mode_, schedule_.gate_threshold, {.rows = rows, .logit = logit, .is_protected = flags, .layer = layer});
    if (static_cast<int32_t>(keep.size()) == rows.n_rows)
      continue;
    n_gone += rows.n_rows - static_cast<int64_t>(keep.size());
    plan.heads.push_back({.layer = layer, .head = head, .rows = std::move(keep)});
  }
  Status status;
  if (n_gone > 0) {
    status = store_->compact(sequence_, plan, *engine_.compute);
    if (status) {
      counters_.discarded_rows += n_gone;
      evicted_until_ = n_tokens;
    } else if (mark_) {
      status = {};  // no room for copies beside the mark: nothing was changed, and the budget will say what must go
    }
  }
  const double ms = watch.milliseconds();
  counters_.policy_ms += ms;
  ledger_.add_ms(layer, ms);
  return status;
}

// Before a token: the layers whose turn it is.
Status Timeline::discard_due() {
  if (!gate_mode_.discards())
    return {};
  if (n_tokens_ % kDiscardPeriod == 0 || schedule_.gate_threshold < 0)
    follow_pressure(1);
  const int n_layers = engine_.model->hyper().n_layers;
  for (int layer = 0; layer < n_layers; ++layer) {
    if (!eviction::is_turn({.layer = layer, .n_layers = n_layers, .n_tokens = n_tokens_, .period = kDiscardPeriod},
                           true))
      continue;
    if (Status status = discard_layer(layer, n_tokens_); !status)
      return status;
  }
  return {};
}

}  // namespace kedge::session
