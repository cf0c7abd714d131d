// Layers that do not get the same: targets by weight, and one total that layers share (eviction/share_layers.h).
#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "eviction/share_layers.h"
#include "session/layer_targets.h"
#include "session/observations.h"
#include "session/timeline.h"

namespace kedge::session {

namespace {

double mean_of(std::span<const float> values) {
  double sum = 0;
  for (const float value : values)
    sum += std::isfinite(value) ? value : 0.0;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

// Whether the heads hold no more than the whole layer input allows.
bool is_within(const eviction::LayerInput& all) {
  int64_t rows = 0;
  int64_t blocks = 0;
  for (const eviction::HeadInput& head : all.heads) {
    rows += head.rows.n_rows;
    blocks += (int64_t{head.rows.n_rows} + all.growth + kBlockRows - 1) / kBlockRows;
  }
  return all.rows_total > 0 ? rows <= all.rows_total : blocks <= all.blocks_total;
}

}  // namespace

std::vector<EvictionTarget> Timeline::layer_targets(const EvictionTarget& mean) const {
  const model::HyperParams& hyper = engine_.model->hyper();
  const bool is_weighted = policy_.allocator->layers() == eviction::Allocator::Layers::weighted;
  if (!is_weighted && !keeps_shares())
    return std::vector<EvictionTarget>(static_cast<size_t>(hyper.n_layers), mean);
  LayerWeights layers{.weight = {}, .n_kv_heads = hyper.n_kv_heads, .fixed_rows = fixed_rows(policy_)};
  for (int l = 0; l < hyper.n_layers; ++l)
    layers.weight.push_back(is_weighted ? policy_.allocator->layer_weight(l, hyper.n_layers)
                                        : layer_notes_[static_cast<size_t>(l)].share);
  return weigh_layers(mean, layers);
}

EvictionTarget Timeline::layer_target(const EvictionTarget& mean, int layer) const {
  return layer_targets(mean)[static_cast<size_t>(layer)];
}

// Whether a division has said what each layer gets: until the next one, layers are evicted one by one, in turns.
bool Timeline::keeps_shares() const {
  return shares_layers() && std::ranges::all_of(layer_notes_, [](const LayerNote& note) { return note.share > 0; });
}

void Timeline::note_shares() {
  const int n_kv_heads = engine_.model->hyper().n_kv_heads;
  for (size_t layer = 0; layer < layer_notes_.size(); ++layer) {
    int64_t rows = -n_kv_heads * fixed_rows(policy_);
    for (int head = 0; head < n_kv_heads; ++head)
      rows += store_->n_rows(sequence_, static_cast<int>(layer), head);
    layer_notes_[layer].share = static_cast<double>(std::max<int64_t>(rows, 1));
  }
}

// Scores one layer and leaves what was said with its rows. Returns what a division over layers needs to know but for
// heads: protection, and the totals of all layers together.
eviction::LayerInput Timeline::score_shared(int layer, const EvictionTarget& mean, int64_t n_tokens) {
  const Stopwatch watch;
  std::vector<attention::ObservedWindow> windows;
  eviction::LayerInput in = layer_input(layer, mean, n_tokens, windows);
  LayerHistory history;
  observations_->add_pending(layer, taps_, n_tokens);
  observations_->attach(layer, policy_.needs(), tokens_, history, in);
  const bool late = falls_back(in);
  in.explain = ledger_.explains();
  if (watch_)
    watch_(in);
  eviction::ScoredLayer scored = eviction::score_layer(late ? fallback_ : policy_, in, *engine_.compute);
  if (late)
    score_as_others(layer, scored);
  for (size_t head = 0; head < scored.score.size(); ++head)
    store_->set_scores(sequence_, layer, static_cast<int>(head), scored.score[head]);
  ledger_.record_parts(layer, in, scored.parts);
  LayerNote& note = layer_notes_[static_cast<size_t>(layer)];
  note = {.demand = scored.demand,
          .measured = std::move(scored.measured),
          .n_tokens = n_tokens,
          .share = note.share,
          .fell_back = late};
  const int64_t n_rows = rows_of(in);
  in.heads.clear();
  const int64_t n_layers = engine_.model->hyper().n_layers;
  in.blocks_total *= n_layers;
  in.rows_total *= n_layers;
  const double ms = watch.milliseconds();
  counters_.policy_ms += ms;
  ledger_.add_ms(layer, ms);
  if (!late && schedule_.clock.is_limited())
    schedule_.clock.measured(eviction::Scoring::all, ms, n_rows);
  return in;
}

// A layer that the fallback has scored: on average its rows are worth what those of the other layers are.
void Timeline::score_as_others(int layer, eviction::ScoredLayer& scored) const {
  double others = 0;
  double demand = 0;
  double measured = 0;
  int n = 0;
  for (size_t l = 0; l < layer_notes_.size(); ++l) {
    const LayerNote& note = layer_notes_[l];
    if (static_cast<int>(l) == layer || note.n_tokens == 0)
      continue;
    for (size_t head = 0; head < scored.score.size(); ++head) {
      others += mean_of(store_->notes(sequence_, static_cast<int>(l), static_cast<int>(head), kv::kScoreNote)) /
                static_cast<double>(scored.score.size());
    }
    demand += note.demand;
    for (const double one : note.measured)
      measured += one / static_cast<double>(note.measured.size());
    ++n;
  }
  for (std::vector<float>& score : scored.score) {
    const double mean = mean_of(score);
    const double factor = n > 0 && mean > 0 ? others / n / mean : 1;
    for (float& value : score)
      value = static_cast<float>(value * std::abs(factor));
  }
  scored.demand = n > 0 ? demand / n : 1;
  scored.measured.assign(scored.score.size(), n > 0 ? measured / n : 0);
}

// Divides totals over the first n_layers layers, from the scores that their rows have, and lets the others go.
Status Timeline::divide_layers(eviction::LayerInput all, int n_layers) {
  const Stopwatch watch;
  const model::HyperParams& hyper = engine_.model->hyper();
  std::vector<eviction::SharedLayer> layers;
  for (int layer = 0; layer < n_layers; ++layer) {
    const LayerNote& note = layer_notes_[static_cast<size_t>(layer)];
    eviction::SharedLayer& own = layers.emplace_back();
    own.layer = layer;
    own.measured = note.measured;
    own.demand = note.demand;
    own.scored_tokens = static_cast<int32_t>(note.n_tokens);
    for (int head = 0; head < hyper.n_kv_heads; ++head) {
      own.score.push_back(store_->notes(sequence_, layer, head, kv::kScoreNote));
      all.heads.push_back({.layer = layer, .head = head, .rows = view(layer, head), .n_layers = hyper.n_layers});
    }
  }
  if (is_within(all))
    return {};
  const eviction::Division division = eviction::divide_layers(*policy_.allocator, all, layers, *engine_.compute);
  kv::KeepPlan keep;
  for (size_t i = 0; i < division.keep.size(); ++i)
    keep.heads.push_back({.layer = all.heads[i].layer, .head = all.heads[i].head, .rows = division.keep[i]});
  record_division(all, layers, division);
  const Status status = store_->compact(sequence_, keep, *engine_.compute);
  if (n_layers == hyper.n_layers)
    note_shares();
  counters_.evictions += n_layers;
  count_fallbacks(std::count_if(layer_notes_.begin(), layer_notes_.begin() + n_layers,
                                [](const LayerNote& note) { return note.fell_back; }));
  const double ms = watch.milliseconds();
  counters_.policy_ms += ms;
  for (const eviction::SharedLayer& layer : layers)  // it was for all of them
    ledger_.add_ms(layer.layer, ms / static_cast<double>(layers.size()));
  return status;
}

// Into the ledger: each layer of a division as an eviction of its own. Parts were recorded with the scores.
void Timeline::record_division(const eviction::LayerInput& all, std::span<const eviction::SharedLayer> layers,
                               const eviction::Division& division) {
  const auto n_kv_heads = static_cast<size_t>(engine_.model->hyper().n_kv_heads);
  for (size_t l = 0; l < layers.size(); ++l) {
    eviction::LayerInput in;
    eviction::LayerDecision decision{.keep = {}, .score = layers[l].score, .is_protected = {}, .parts = {}};
    for (size_t i = l * n_kv_heads; i < (l + 1) * n_kv_heads; ++i) {
      in.heads.push_back(all.heads[i]);
      decision.keep.push_back(division.keep[i]);
      decision.is_protected.push_back(division.is_protected[i]);
    }
    ledger_.record(layers[l].layer, in, decision);
  }
}

// A layer of a chunk has attended: it is scored, and shares with the layers before it what the store can hold beside
// the rows of the next one and those that the others have of earlier chunks, which they still attend over; after the
// last layer, the target.
Status Timeline::join_layer(int layer, const EvictionTarget& mean, int64_t n_tokens) {
  if (Status status = prepare_eviction(mean); !status)
    return status;
  if (Status status = protection_fits(mean, n_tokens); !status)
    return status;
  last_target_ = mean;
  eviction::LayerInput all = score_shared(layer, mean, n_tokens);
  if (layer + 1 < engine_.model->hyper().n_layers) {
    const kv::StoreShape& shape = store_->shape();
    const int64_t next = reading_blocks(shape, plan_, n_tokens - n_tokens_);
    if (store_->stats().free_blocks >= next)
      return {};
    const int n_layers = engine_.model->hyper().n_layers;
    all.blocks_total = planned_blocks(shape, plan_) - next;
    for (int later = layer + 1; later < n_layers; ++later)
      all.blocks_total -= layer_blocks(later, 0);
    all.rows_total = 0;
    all.growth = 0;
  }
  evicted_until_ = n_tokens;
  return divide_layers(std::move(all), layer + 1);
}

// All layers at once: scored first, then divided.
Status Timeline::divide_all(const EvictionTarget& mean) {
  const int n_layers = engine_.model->hyper().n_layers;
  const int n_kv_heads = engine_.model->hyper().n_kv_heads;
  eviction::LayerInput all{
      .blocks_total = mean.blocks * n_layers, .growth = mean.growth, .rows_total = mean.rows_exact * n_layers};
  for (int layer = 0; layer < n_layers; ++layer) {
    for (int head = 0; head < n_kv_heads; ++head)
      all.heads.push_back({.layer = layer, .head = head, .rows = view(layer, head)});
  }
  if (is_within(all))
    return {};
  if (Status status = prepare_eviction(mean); !status)
    return status;
  if (Status status = protection_fits(mean, n_tokens_); !status)
    return status;
  last_target_ = mean;
  evicted_until_ = n_tokens_;
  for (int layer = 0; layer < n_layers; ++layer)
    all = score_shared(layer, mean, n_tokens_);
  return divide_layers(std::move(all), n_layers);
}

}  // namespace kedge::session
