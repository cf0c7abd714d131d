// What the schedule asks for while tokens are decoded, and what a layer may use by the difficulty of its context.
#include <algorithm>

#include "base/clock.h"
#include "eviction/difficulty.h"
#include "eviction/window_scorer.h"
#include "session/reading.h"
#include "session/timeline.h"

namespace kedge::session {
namespace {

constexpr int kSampleRows = 64;  // rows of one head on which a policy's speed is measured

}  // namespace

int64_t rows_of(const eviction::LayerInput& in) {
  int64_t rows = 0;
  for (const eviction::HeadInput& head : in.heads)
    rows += head.rows.n_rows;
  return rows;
}

// Blocks of a layer when every head has `ahead` more rows; beside a firm mark those that it owns.
int64_t Timeline::layer_blocks(int layer, int64_t ahead) const {
  if (mark_ && mark_->kind == Mark::firm) {
    const kv::Store::LayerBlocks held = store_->layer_blocks(sequence_, layer, static_cast<int>(ahead));
    return held.own + held.missing;
  }
  int64_t blocks = 0;
  for (int head = 0; head < engine_.model->hyper().n_kv_heads; ++head)
    blocks += (store_->n_rows(sequence_, layer, head) + ahead + kBlockRows - 1) / kBlockRows;
  return blocks;
}

LeastRows Timeline::least_rows() const {
  return {.n_kv_heads = engine_.model->hyper().n_kv_heads, .rows = fixed_rows(policy_)};
}

// What a layer is cut to while decoding: with room for the tokens until its next turn, or for the last ones expected.
EvictionTarget Timeline::decoding_target() const {
  EvictionTarget target = plan_.decoding;
  int64_t prompt = options_.expected_prompt;
  if (options_.overflow == Overflow::truncate)
    prompt = std::min(prompt, counters_.prompt_tokens);  // what of it was read
  const int64_t expected = prompt + options_.expected_generated - n_tokens_;
  if (options_.expected_generated >= 0 && expected > 0)
    target.growth = static_cast<int32_t>(std::min<int64_t>(target.growth, expected));
  target.growth = std::max(target.growth, 1);
  return target;
}

// Before a token: evicts the layers that the schedule names.
Status Timeline::evict_due() {
  if (!policy_.evicts || options_.hold_continuation || plan_.decoding.blocks == 0)
    return {};
  const int n_layers = engine_.model->hyper().n_layers;
  const EvictionTarget target = decoding_target();
  eviction::LayerMoment at{.n_layers = n_layers, .n_tokens = n_tokens_, .period = std::max(plan_.decoding.growth, 1)};
  int64_t held = 0;
  for (int layer = 0; layer < n_layers; ++layer)
    held += layer_blocks(layer, 1);
  const int64_t limit_bytes =
      plan_.own_blocks > 0 ? plan_.own_blocks * kv::block_bytes_total(store_->shape()) : plan_.budget_bytes;
  at.pressure = static_cast<double>(held * kv::block_bytes_total(store_->shape())) / static_cast<double>(limit_bytes);
  begin_round();
  if (shares_layers() && !keeps_shares())
    return divide_due(target, at);
  const std::vector<EvictionTarget> shares = layer_targets(target);
  const bool layers_differ = policy_.allocator->layers() != eviction::Allocator::Layers::equal;
  double whole = layers_differ ? whole_use(target) : 0;
  for (at.layer = 0; at.layer < n_layers; ++at.layer) {
    const EvictionTarget& share = shares[static_cast<size_t>(at.layer)];
    at.used = static_cast<double>(layer_blocks(at.layer, target.growth)) / static_cast<double>(share.blocks);
    if (layers_differ)
      at.used = std::min(at.used, whole);  // layers differ only where the whole is short
    const eviction::Cut cut = policy_.schedule->at_token(at);
    if (!cut.is_due)
      continue;
    const EvictionTarget cut_to = scaled(target, cut.keep, least_rows());
    if (!can_cut_to(layer_target(cut_to, at.layer)))
      continue;
    if (Status status = evict_layer(at.layer, cut_to, n_tokens_); !status)
      return status;
    whole = layers_differ ? whole_use(target) : 0;
  }
  return {};
}

// Whether a layer can be cut to this. A schedule's wish yields to what is protected and to a firm mark; the budget's
// own limit will say so where it must.
bool Timeline::can_cut_to(const EvictionTarget& target) const {
  if (mark_ && mark_->kind == Mark::firm && target.blocks < plan_.least_layer_blocks)
    return false;
  return protection_fits(target, n_tokens_).ok();
}

// Blocks of all layers when every head has grown, in blocks of all shares.
double Timeline::whole_use(const EvictionTarget& target) const {
  const int n_layers = engine_.model->hyper().n_layers;
  int64_t blocks = 0;
  for (int layer = 0; layer < n_layers; ++layer)
    blocks += layer_blocks(layer, target.growth);
  return static_cast<double>(blocks) / static_cast<double>(plan_.decoding.blocks * n_layers);
}

// The first division of layers that share one total: one turn, the first layer's, for all of them.
Status Timeline::divide_due(const EvictionTarget& target, eviction::LayerMoment at) {
  at.layer = 0;
  at.used = whole_use(target);
  const eviction::Cut cut = policy_.schedule->at_token(at);
  if (!cut.is_due)
    return {};
  const EvictionTarget cut_to = scaled(target, cut.keep, least_rows());
  if (!can_cut_to(cut_to))
    return {};
  store_->release_reserved(sequence_);
  return divide_all(cut_to);
}

// What all layers are cut to when n more tokens do not fit.
EvictionTarget Timeline::forced_target(int64_t n_tokens) const {
  EvictionTarget target = plan_.decoding;
  target.growth = std::max(target.growth, static_cast<int32_t>(n_tokens));
  const eviction::LayerMoment at{.n_layers = engine_.model->hyper().n_layers,
                                 .n_tokens = n_tokens_,
                                 .period = std::max(plan_.decoding.growth, 1),
                                 .used = 1,
                                 .pressure = 1,
                                 .must = true};
  return scaled(target, policy_.schedule->at_token(at).keep, least_rows());
}

// The part of `target` that the layer's context needs, where the schedule measures that.
EvictionTarget Timeline::measured_target(const EvictionTarget& target, const eviction::LayerInput& in) {
  const eviction::Schedule& schedule = *policy_.schedule;
  if (schedule.measure() == eviction::Difficulty::none || target.rows_exact > 0)
    return target;
  const auto n_layers = static_cast<size_t>(engine_.model->hyper().n_layers);
  schedule_.difficulty.resize(n_layers, 1.0F);
  schedule_.share.resize(n_layers, 1.0F);
  double sum = 0;
  for (const eviction::HeadInput& head : in.heads)
    sum += eviction::difficulty(schedule.measure(), head, schedule.min_share());
  const double difficulty = sum / static_cast<double>(in.heads.size());
  const auto layer = static_cast<size_t>(in.heads.front().layer);
  schedule_.difficulty[layer] = static_cast<float>(difficulty);
  schedule_.share[layer] = static_cast<float>(schedule.share(difficulty));
  return scaled(target, schedule.share(difficulty), least_rows());
}

// ---- time limit ----

void Timeline::begin_round() { round_fell_back_ = false; }

// Whether this layer has to do with sinks and recent rows; counts it, and its round once.
bool Timeline::falls_back(const eviction::LayerInput& in) {
  if (!schedule_.clock.is_limited())
    return false;
  const int64_t rows = rows_of(in);
  if (schedule_.clock.wants_sample() && rows > 0) {
    eviction::HeadInput slice = eviction::last_queries(in.heads.front(), policy_.scorer->needs().window);
    slice.rows.n_rows = std::min<int32_t>(slice.rows.n_rows, kSampleRows);
    for (std::span<const float>* history :
         {&slice.attention_sum, &slice.past, &slice.echo, &slice.reconstruction, &slice.gate})
      *history = history->first(std::min<size_t>(history->size(), kSampleRows));
    std::vector<float> score(static_cast<size_t>(slice.rows.n_rows));
    const Stopwatch watch;
    policy_.scorer->score(slice, score);
    schedule_.clock.measured(eviction::Scoring::all, watch.milliseconds() / engine_.compute->n_threads(),
                             slice.rows.n_rows);
  }
  return schedule_.clock.holds_back(in.scoring, rows);
}

void Timeline::count_fallbacks(int64_t n) {
  if (n == 0)
    return;
  counters_.policy_fallbacks += n;
  counters_.policy_fallback_rounds += round_fell_back_ ? 0 : 1;
  round_fell_back_ = true;
}

}  // namespace kedge::session
