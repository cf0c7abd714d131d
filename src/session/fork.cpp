// A second timeline over rows that are already there. Under other options: what a prefill in layer-major order does,
// with copied rows in the place of computed ones. Attention comes before eviction, so that the rows of a full cache,
// the observed queries and the logits are the same for every policy and budget.
#include <algorithm>
#include <string>

#include "session/observations.h"
#include "session/reconstruct.h"
#include "session/timeline.h"

namespace kedge::session {

Result<std::unique_ptr<Timeline>> Timeline::fork(const SessionOptions& options) const {
  SessionOptions announced = options;
  announced.expected_prompt = n_tokens_;
  Result<std::unique_ptr<Timeline>> child = create(engine_, announced);
  if (!child)
    return child.error();
  if (Status status = acceptable_fork(**child); !status)
    return status.error();
  if (Status status = (*child)->copy_prompt(*this); !status)
    return status.error();
  return child;
}

// Exact at any time: the same rows, in a store of the same size.
Result<std::unique_ptr<Timeline>> Timeline::fork() const {
  Result<std::unique_ptr<Timeline>> child = create(engine_, asked_);
  if (!child)
    return child.error();
  std::vector<std::byte> bytes;
  for (int layer = 0; layer < engine_.model->hyper().n_layers; ++layer) {
    for (int head = 0; head < engine_.model->hyper().n_kv_heads; ++head) {
      bytes.clear();
      store_->export_rows(sequence_, layer, head, bytes);
      Timeline& to = **child;
      if (Status status = to.store_->import_rows(to.sequence_, layer, head, bytes, n_tokens_); !status)
        return status.error();
    }
  }
  (*child)->adopt(snapshot());
  return child;
}

Status Timeline::acceptable_fork(const Timeline& child) const {
  const auto refused = [](const std::string& why) { return Error{ErrorCode::usage, "cannot fork: " + why}; };
  const int64_t heads = int64_t{engine_.model->hyper().n_layers} * engine_.model->hyper().n_kv_heads;
  if (n_tokens_ == 0 || logits_.empty())
    return refused("nothing has been read");
  if (store_->n_rows_total(sequence_) != heads * n_tokens_)
    return refused("rows were evicted here; a fork without options goes on with those that are left");
  if (child.store_->shape().type != store_->shape().type) {
    return refused("cache types " + child.options_.cache_type_k + " and " + child.options_.cache_type_v + ", here " +
                   options_.cache_type_k + " and " + options_.cache_type_v);
  }
  if (store_->shape().type.quantised() && (child.plan_.f16_rows.window != plan_.f16_rows.window ||
                                           child.plan_.f16_rows.ubatch_tokens != plan_.f16_rows.ubatch_tokens)) {
    return refused("this budget holds fewer rows in f16");
  }
  if (child.plan_.evicts && !child.plan_.layer_major)
    return refused("this budget reads a prompt of " + std::to_string(n_tokens_) + " tokens in chunks");
  if (child.options_.n_ctx > 0 && n_tokens_ > child.options_.n_ctx)
    return refused("a context of " + std::to_string(child.options_.n_ctx) + " is shorter than what was read");
  const eviction::Needs needs = recorded_needs(child.options_, child.policy_);
  if (const std::string missing = observations_->missing(needs); !missing.empty())
    return refused("the policy reads " + missing + ", which were not recorded here (SessionOptions::histories)");
  const int observed = needs.window;
  if (observed > taps_.window()) {
    return refused("the policy observes " + std::to_string(observed) + " query rows, kept here " +
                   std::to_string(taps_.window()));
  }
  return {};
}

// Rows and what was recorded about them. Where the child would have repeated the prompt, room is taken for that as
// well, so that its peak is that of a session of its own.
Status Timeline::copy_layer(const Timeline& parent, int layer) {
  for (int head = 0; head < engine_.model->hyper().n_kv_heads; ++head)
    store_->copy_rows(sequence_, layer, head, parent.view(layer, head));
  const bool repeated = is_repeated({.tokens = {}, .evict = plan_.evicts});
  observations_->copy_layer(*parent.observations_, layer, repeated);
  if (!repeated)
    return {};
  size_t longest = 0;
  for (const Probe& probe : make_probes(probe_text(engine_.tokenizer), tokens_, 0))
    longest = std::max(longest, probe.tokens.size());
  const Status status = store_->reserve(sequence_, layer, layer + 1, static_cast<int>(longest));
  store_->release_reserved(sequence_);
  return status;
}

Status Timeline::copy_prompt(const Timeline& parent) {
  const model::HyperParams& hyper = engine_.model->hyper();
  const int64_t n = parent.n_tokens_;
  text_->append(parent.tokens_);
  if (Status status = plan_.evicts ? prompt_protection_fits(n, true, false) : Status(); !status)
    return status;
  taps_.copy_from(parent.taps_, static_cast<int32_t>(n));
  tokens_ = parent.tokens_;
  if (gate_mode_.discards())
    follow_pressure(n);
  for (int layer = 0; layer < hyper.n_layers; ++layer) {
    if (Status status = store_->reserve(sequence_, layer, layer + 1, static_cast<int>(n)); !status)
      return status;
    if (Status status = store_->open_tail(sequence_, layer, layer + 1, parent.view(layer, 0).n_tail); !status)
      return status;
    if (Status status = copy_layer(parent, layer); !status)
      return status;
    const double done = static_cast<double>(n * (layer + 1)) / hyper.n_layers;
    trace(done);
    if (gate_mode_.discards()) {
      if (Status status = discard_layer(layer, n); !status)
        return status;
    }
    if (!plan_.evicts)
      continue;
    if (Status status = evict_layer(layer, plan_.after_prompt, n); !status)
      return status;
    trace(done);
  }
  n_tokens_ = n;
  logits_ = parent.logits_;
  counters_.prompt_tokens = n;
  return {};
}

}  // namespace kedge::session
