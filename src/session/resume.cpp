// A timeline as a session file, and back. Restoring makes a timeline of its own: nothing live is touched.
#include <algorithm>
#include <string>

#include "session/file.h"
#include "session/history_bytes.h"
#include "session/model_identity.h"
#include "session/observations.h"
#include "session/timeline.h"

namespace kedge::session {
namespace {

Error named(const FileView& file, const Error& error) { return {error.code, file.name + ": " + error.message}; }

Error bad(const FileView& file, const std::string& what) { return {ErrorCode::failed, file.name + ": " + what}; }

int observed_rows(const SessionOptions& options, const eviction::Policy& policy) {
  const eviction::Needs recorded = recorded_needs(options, policy);
  return std::max(recorded.window, Observations::ring_size(recorded));
}

}  // namespace

Status Timeline::save(const SessionFileExtras& extras, const std::string& path) const {
  const model::HyperParams& hyper = engine_.model->hyper();
  const attention::Taps::Contents observed = taps_.contents();
  const Snapshot now = snapshot();
  const std::vector<std::byte> history = history_to_bytes(saved_history());
  return write_session_file({.header = {.model = identify(*engine_.model),
                                        .options = asked_,
                                        .policy = policy_.text,
                                        .kernels = engine_.kernels->name,
                                        .gate_sha256 = asks_gate() ? engine_.gate_sha256 : "",
                                        .n_tokens = n_tokens_,
                                        .evicted_rows = now.evicted_rows,
                                        .evicted_until = evicted_until_,
                                        .last_blocks = last_target_.blocks,
                                        .last_growth = last_target_.growth,
                                        .last_rows_exact = last_target_.rows_exact,
                                        .n_observed = taps_.window(),
                                        .stats = stats(),
                                        .sampler = extras.sampler},
                             .tokens = tokens_,
                             .logits = logits_,
                             .observed_positions = observed.positions,
                             .observed_q = observed.q,
                             .observed_y = observed.y,
                             .history = history,
                             .n_heads = hyper.n_layers * hyper.n_kv_heads,
                             .export_head =
                                 [&](int index, std::vector<std::byte>& out) {
                                   store_->export_rows(sequence_, index / hyper.n_kv_heads, index % hyper.n_kv_heads,
                                                       out);
                                 },
                             .app_data = extras.app_data},
                            path);
}

Result<std::unique_ptr<Timeline>> Timeline::restore(const Engine& engine, const FileView& file) {
  const FileHeader& header = file.header;
  if (Status status = same_model(header.model, identify(*engine.model)); !status)
    return named(file, status.error());
  if (!header.gate_sha256.empty() && header.gate_sha256 != engine.gate_sha256) {
    return named(
        file, {ErrorCode::usage, "it was saved with the gate of sha256 " + header.gate_sha256.substr(0, 16) + ", " +
                                     (engine.gate_sha256.empty() ? std::string("and none is loaded: --gate FILE")
                                                                 : "loaded is " + engine.gate_sha256.substr(0, 16))});
  }
  // Before anything is allocated by what the file says: the observed window is as large as its section.
  SessionOptions options = header.options;
  if (options.policy.empty())  // the default of then, whatever gate is loaded now: a bare name
    options.policy = header.policy.substr(0, header.policy.find_first_of(":/"));
  Result<eviction::Policy> policy = session_policy(engine, options);
  if (!policy)
    return named(file, policy.error());
  if (const int window = observed_rows(options, *policy); window != header.n_observed) {
    return bad(file, "header field 'n_observed': found " + std::to_string(header.n_observed) + ", allowed " +
                         std::to_string(window) + ", which the policy observes");
  }
  Result<std::unique_ptr<Timeline>> made = create(engine, options);
  if (!made)
    return named(file, made.error());
  Timeline& timeline = **made;
  if (timeline.policy_.text != header.policy) {
    return bad(file, "header field 'policy': found '" + header.policy + "', allowed '" + timeline.policy_.text +
                         "', what its options mean here");
  }
  if (Status status = timeline.take_over(file); !status)
    return named(file, status.error());
  return made;
}

Status Timeline::take_over(const FileView& file) {
  const FileHeader& header = file.header;
  const model::HyperParams& hyper = engine_.model->hyper();
  for (int layer = 0; layer < hyper.n_layers; ++layer) {
    for (int head = 0; head < hyper.n_kv_heads; ++head) {
      const auto index = static_cast<size_t>(layer * hyper.n_kv_heads + head);
      if (Status status = store_->import_rows(sequence_, layer, head, file.heads[index], header.n_tokens); !status) {
        return Error{status.error().code, "section 'rows': layer " + std::to_string(layer) + " head " +
                                              std::to_string(head) + ": " + status.error().message};
      }
    }
  }
  const int64_t all = int64_t{hyper.n_layers} * hyper.n_kv_heads * header.n_tokens;
  const int64_t held = store_->n_rows_total(sequence_);
  if (held + header.evicted_rows != all) {
    return Error{ErrorCode::failed, "header field 'evicted_rows': found " + std::to_string(header.evicted_rows) +
                                        ", allowed " + std::to_string(all - held) + " (" + std::to_string(all) +
                                        " rows were read, " + std::to_string(held) + " are here)"};
  }
  Snapshot at{.n_tokens = header.n_tokens,
              .tokens = file.tokens,
              .logits = file.logits,
              .taps = taps_,
              .last_target = {.blocks = header.last_blocks,
                              .growth = static_cast<int32_t>(header.last_growth),
                              .rows_exact = header.last_rows_exact},
              .schedule = schedule_,
              .ledger = ledger_,
              .counters = header.stats,
              .evicted_rows = header.evicted_rows,
              .evicted_until = header.evicted_until,
              .peak_bytes = header.stats.kv_peak_bytes};
  const std::string wrong =
      at.taps.load({.q = file.observed_q, .y = file.observed_y, .positions = file.observed_positions}, header.n_tokens);
  if (!wrong.empty())
    return Error{ErrorCode::failed, "section 'observed': " + wrong};
  SavedHistory saved = saved_history();
  const std::string history = history_from_bytes(
      file.history, {.n_tokens = header.n_tokens, .n_layers = hyper.n_layers, .n_kv_heads = hyper.n_kv_heads}, saved);
  if (!history.empty())
    return Error{ErrorCode::failed, "section 'history': " + history};
  at.history = std::move(saved.observed);
  at.layer_notes = std::move(saved.layer_notes);
  at.schedule.scored_at = std::move(saved.scored_at);
  at.schedule.difficulty = std::move(saved.difficulty);
  at.schedule.share = std::move(saved.share);
  if (gate_mode_.discards() && header.n_tokens > 0)
    at.schedule.gate_threshold = header.stats.gate_threshold;
  at.taps.running().restore(saved.anchor);
  if (Status status = check_pending(at); !status)
    return status;
  adopt(at);
  return {};
}

SavedHistory Timeline::saved_history() const {
  return {.observed = observations_->state(),
          .layer_notes = layer_notes_,
          .scored_at = schedule_.scored_at,
          .difficulty = schedule_.difficulty,
          .share = schedule_.share,
          .anchor = taps_.running().state()};
}

// Queries that were not added to the histories yet must be among those that were observed.
Status Timeline::check_pending(const Snapshot& at) const {
  if (!observations_->wants_queries())
    return {};
  for (size_t layer = 0; layer < at.history.n_added.size(); ++layer) {
    const auto observed = at.taps.gather({.layer = static_cast<int>(layer),
                                          .first_head = 0,
                                          .group = engine_.model->hyper().n_heads,
                                          .n_tokens = static_cast<int32_t>(at.n_tokens)});
    const int64_t pending = at.n_tokens - at.history.n_added[layer];
    if (pending > static_cast<int64_t>(observed.positions.size())) {
      return Error{ErrorCode::failed, "section 'history': layer " + std::to_string(layer) + ": found " +
                                          std::to_string(pending) + " queries that were not added, allowed the " +
                                          std::to_string(observed.positions.size()) + " that were observed"};
    }
  }
  return {};
}

}  // namespace kedge::session
