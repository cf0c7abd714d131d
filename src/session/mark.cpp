// Coming back to a point of a timeline: a mark shares the blocks of its rows with what follows (copy-on-write), and
// what follows lives in the rest of the budget (plan_branch in session/planner.h).
#include <algorithm>
#include <numeric>
#include <string>

#include "session/observations.h"
#include "session/timeline.h"

namespace kedge::session {

// Whatever a timeline changes while it runs is named in the next two functions; rows are the store's.
Snapshot Timeline::snapshot() const {
  const kv::StoreStats held = store_->stats();
  return {.n_tokens = n_tokens_,
          .tokens = tokens_,
          .logits = logits_,
          .taps = taps_,
          .history = observations_->state(),
          .layer_notes = layer_notes_,
          .last_target = last_target_,
          .schedule = schedule_,
          .ledger = ledger_,
          .counters = counters_,
          .evicted_rows = held.evicted_rows + evicted_before_,
          .evicted_until = evicted_until_,
          .peak_bytes = std::max(held.peak_bytes, peak_before_bytes_),
          .n_trace = memory_trace_.size()};
}

void Timeline::adopt(const Snapshot& from) {
  n_tokens_ = from.n_tokens;
  tokens_ = from.tokens;
  logits_ = from.logits;
  taps_ = from.taps;
  observations_->adopt(from.history, n_tokens_);
  text_->truncate(0);
  text_->append(tokens_);
  last_target_ = from.last_target;
  schedule_ = from.schedule;
  ledger_ = from.ledger;
  layer_notes_ = from.layer_notes;
  counters_ = from.counters;
  evicted_before_ = from.evicted_rows - store_->stats().evicted_rows;
  evicted_until_ = from.evicted_until;
  peak_before_bytes_ = from.peak_bytes;
  if (from.n_trace < memory_trace_.size())
    memory_trace_.resize(from.n_trace);
}

RowNotes Timeline::row_notes() const {
  RowNotes out;
  for (int layer = 0; layer < engine_.model->hyper().n_layers; ++layer) {
    for (int head = 0; head < engine_.model->hyper().n_kv_heads; ++head) {
      for (int note = 0; note < store_->shape().n_notes; ++note)
        out.notes.push_back(store_->notes(sequence_, layer, head, note));
      std::vector<uint8_t>& flags = out.flags.emplace_back();
      for (int32_t row = 0; row < store_->n_rows(sequence_, layer, head); ++row)
        flags.push_back(store_->flags(sequence_, layer, head, row));
    }
  }
  return out;
}

void Timeline::set_row_notes(const RowNotes& from) {
  size_t column = 0;
  size_t index = 0;
  for (int layer = 0; layer < engine_.model->hyper().n_layers; ++layer) {
    for (int head = 0; head < engine_.model->hyper().n_kv_heads; ++head) {
      for (int note = 0; note < store_->shape().n_notes; ++note)
        store_->set_notes(sequence_, layer, head, note, from.notes[column++]);
      store_->set_flags(sequence_, layer, head, from.flags[index++]);
    }
  }
}

void Timeline::mark(Mark kind) {
  drop_mark();
  store_->release_reserved(sequence_);
  mark_ = MarkedPoint{.sequence = store_->fork_sequence(sequence_),
                      .at = snapshot(),
                      .notes = row_notes(),
                      .kind = kind,
                      .plan = plan_};
  if (kind == Mark::yielding)
    return;
  int64_t marked = 0;
  for (int layer = 0; layer < engine_.model->hyper().n_layers; ++layer)
    marked += store_->layer_blocks(sequence_, layer).shared;
  // What follows has tails of its own.
  const int64_t rows_bytes =
      store_->stats().budget_bytes - 2 * kv::tail_bytes(store_->shape(), plan_.f16_rows.ubatch_tokens);
  const Request request = session_request(engine_, options_, recorded_needs(options_, policy_));
  plan_ = plan_branch(store_->shape(), policy_, request, plan_,
                      rows_bytes / kv::block_bytes_total(store_->shape()) - marked);
}

void Timeline::drop_mark() {
  if (!mark_)
    return;
  store_->drop_sequence(mark_->sequence);
  if (mark_->kind == Mark::firm)
    plan_ = std::move(mark_->plan);
  mark_.reset();
}

Status Timeline::rewind() {
  if (!mark_)
    return Error{ErrorCode::usage, "cannot rewind: there is no mark"};
  store_->share_rows(sequence_, mark_->sequence);
  set_row_notes(mark_->notes);
  adopt(mark_->at);
  return {};
}

Status Timeline::rewind(int64_t n_tokens) {
  const auto refused = [n_tokens](const std::string& why) {
    return Error{ErrorCode::usage, "cannot rewind to token " + std::to_string(n_tokens) + ": " + why};
  };
  if (n_tokens < 0 || n_tokens > n_tokens_)
    return refused("allowed are 0.." + std::to_string(n_tokens_));
  if (n_tokens == n_tokens_)
    return {};
  if (n_tokens < evicted_until_)
    return refused("rows were evicted when there were " + std::to_string(evicted_until_));
  if (observations_->wants_queries() || store_->shape().n_notes > 1 || shares_layers() || taps_.running().is_on())
    return refused("the policy keeps a history, which the tokens behind it are part of");
  if (!taps_.reach_back_to(static_cast<int32_t>(n_tokens))) {
    return refused("the policy observes the last " + std::to_string(taps_.window()) +
                   " queries, and what it saw of those before that token is gone");
  }
  if (mark_ && n_tokens < mark_->at.n_tokens)
    drop_mark();
  const int64_t written = std::min(counters_.generated_tokens, n_tokens_ - n_tokens);  // the last ones, mostly
  counters_.generated_tokens -= written;
  counters_.prompt_tokens -= n_tokens_ - n_tokens - written;
  n_tokens_ = n_tokens;
  store_->truncate(sequence_, static_cast<int32_t>(n_tokens));
  taps_.truncate(static_cast<int32_t>(n_tokens));
  text_->truncate(n_tokens);
  observations_->forget(n_tokens);
  ledger_.forget(n_tokens);
  forget_scores();
  tokens_.resize(static_cast<size_t>(n_tokens));
  logits_.clear();
  return {};
}

// ---- room beside a mark ----

// A branch owns at most its layers' shares: that leaves the room which the copies of an eviction need.
bool Timeline::branch_has_room(int64_t n_tokens) const {
  int64_t blocks = 0;
  for (int layer = 0; layer < engine_.model->hyper().n_layers; ++layer) {
    const kv::Store::LayerBlocks held = store_->layer_blocks(sequence_, layer, static_cast<int>(n_tokens));
    blocks += held.own + held.missing;
  }
  return blocks <= plan_.decoding.blocks * engine_.model->hyper().n_layers;
}

// The order in which all layers are evicted. Beside a firm mark those come first that give back the most, so that there
// is never less room than at the beginning or at the end.
std::vector<int> Timeline::eviction_order(const EvictionTarget& mean) const {
  std::vector<int> order(static_cast<size_t>(engine_.model->hyper().n_layers));
  std::iota(order.begin(), order.end(), 0);
  if (!mark_ || mark_->kind != Mark::firm)
    return order;
  std::vector<int64_t> gives;
  for (const int layer : order)
    gives.push_back(store_->layer_blocks(sequence_, layer).own - layer_target(mean, layer).blocks);
  std::ranges::stable_sort(order,
                           [&](int a, int b) { return gives[static_cast<size_t>(a)] > gives[static_cast<size_t>(b)]; });
  return order;
}

// Whether n more rows fit in every head. A yielding mark is dropped where that helps.
bool Timeline::has_room(int64_t n_tokens) {
  if (mark_ && mark_->kind == Mark::firm && policy_.evicts)
    return branch_has_room(n_tokens);
  if (mark_ && mark_->kind == Mark::yielding && blocks_needed(n_tokens) > store_->stats().free_blocks)
    drop_mark();
  return blocks_needed(n_tokens) <= store_->stats().free_blocks;
}

// Before rows go: a yielding mark is dropped, a firm one must leave enough room.
Status Timeline::prepare_eviction(const EvictionTarget& target) {
  if (!mark_)
    return {};
  if (mark_->kind == Mark::yielding) {
    drop_mark();
    return {};
  }
  if (target.blocks >= plan_.least_layer_blocks)
    return {};
  const int64_t layers = engine_.model->hyper().n_layers;
  const kv::StoreStats held = store_->stats();
  const auto number = [](int64_t n) { return std::to_string(n); };
  int64_t own = 0;
  for (int layer = 0; layer < layers; ++layer)
    own += store_->layer_blocks(sequence_, layer).own;
  const int64_t marked = held.total_blocks - held.free_blocks - own;
  return Error{ErrorCode::budget_impossible,
               "the mark at token " + number(mark_->at.n_tokens) + " holds " + number(marked) + " of the " +
                   number(held.total_blocks) + " blocks of the KV budget; of the " +
                   number(held.total_blocks - marked) + " others a layer of what follows may keep " +
                   number(target.blocks) + " (" + number(layers) + " layers, and the copies of one), and at least " +
                   number(plan_.least_layer_blocks) + " are needed: leave room for a branch, or raise the budget to " +
                   number((marked + 2 * layers * (plan_.least_layer_blocks + target.growth / kBlockRows + 1)) *
                              kv::block_bytes_total(store_->shape()) / 1024 +
                          1) +
                   "KiB"};
}

}  // namespace kedge::session
