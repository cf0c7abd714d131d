#include "train/fit_ageing.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/half.h"
#include "train/collect.h"

namespace kedge::train {
namespace {

// The networks are small and see few rows: more, smaller and longer steps than those of the append stage.
constexpr int kMoreEpochs = 4;
constexpr int kBatch = 64;
constexpr float kRate = 5e-3F;

std::span<const uint16_t> inputs_of(const ShardFile& shard, int layer, const gate::GateInfo& info) {
  return info.input == "key_value" ? shard.kv(layer) : shard.x(layer);
}

// The append stage's logits of a shard's first n_aged rows: f32 [kv head][n_aged].
std::vector<std::vector<float>> appended_logits(const ShardFile& shard, int layer, const gate::Gate& gate) {
  const auto n_inputs = static_cast<size_t>(gate::input_size(gate.info));
  const size_t n_aged = shard.shape().n_aged;
  const size_t n_heads = shard.shape().n_heads;
  return gate::logits_by_head(gate.layers[static_cast<size_t>(layer)], gate.info,
                              {.n = static_cast<int64_t>(n_aged),
                               .n_embd = static_cast<int>(n_inputs),
                               .n_heads = static_cast<int>(n_heads),
                               .x = inputs_of(shard, layer, gate.info).first(n_aged * n_inputs),
                               .y = shard.late(layer)});
}

Result<gate::LayerGate> fit_head(const Rows& train, const Rows& held_out, const FitOptions& options) {
  SerialExecutor serial;
  if (options.width == 0)
    return gate::fit_linear(train.examples(), {.ridge = options.ridge}, serial);
  return gate::fit_mlp(train.examples(), held_out.examples(),
                       {.width = kAgeingWidth,
                        .epochs = kMoreEpochs * options.epochs,
                        .rate = kRate,
                        .batch = kBatch,
                        .seed = options.seed},
                       serial, {});
}

}  // namespace

Rows rows_of(std::span<const ShardFile> shards, int layer, const gate::GateInfo& info) {
  Rows rows{.n_inputs = gate::input_size(info), .n_heads = info.model.n_kv_heads, .x = {}, .y = {}};
  for (const ShardFile& shard : shards) {
    const std::span<const uint16_t> x = inputs_of(shard, layer, info);
    const std::span<const float> y = shard.y(layer);
    rows.x.insert(rows.x.end(), x.begin(), x.end());
    rows.y.insert(rows.y.end(), y.begin(), y.end());
  }
  return rows;
}

AgedRows aged_rows(std::span<const ShardFile> shards, int layer, const gate::Gate& gate) {
  const std::vector<gate::Feature>& features = gate.ageing.info.features;
  AgedRows rows;
  rows.heads.resize(static_cast<size_t>(gate.info.model.n_kv_heads),
                    {.n_inputs = static_cast<int>(features.size()), .n_heads = 1, .x = {}, .y = {}});
  for (const ShardFile& shard : shards) {
    const std::vector<gate::Feature> collected = features_of(shard.shape().features);
    std::vector<std::vector<float>> logits;
    if (gate.ageing.info.asks(gate::Feature::logit))
      logits = appended_logits(shard, layer, gate);
    const std::span<const uint16_t> all = shard.features(layer);
    const std::span<const float> late = shard.late(layer);
    for (size_t i = 0; i < late.size(); ++i) {
      const size_t head = i % rows.heads.size();
      Rows& own = rows.heads[head];
      for (const gate::Feature feature : features) {
        const auto column = static_cast<size_t>(std::ranges::find(collected, feature) - collected.begin());
        own.x.push_back(feature == gate::Feature::logit ? f32_to_f16(logits[head][i / rows.heads.size()])
                                                        : all[i * collected.size() + column]);
      }
      own.y.push_back(late[i]);
    }
  }
  return rows;
}

Result<gate::AgeingLayer> fit_ageing_layer(const AgedRows& train, const AgedRows& held_out, const FitOptions& options,
                                           Executor& executor) {
  std::vector<gate::LayerGate> heads(train.heads.size());
  std::vector<Status> status(train.heads.size());
  for_each_index(executor, static_cast<int>(heads.size()), [&](int i) {
    const auto h = static_cast<size_t>(i);
    Result<gate::LayerGate> own = fit_head(train.heads[h], held_out.heads[h], options);
    if (own)
      heads[h] = *std::move(own);
    else
      status[h] = own.error();
  });
  gate::AgeingLayer layer;
  for (size_t h = 0; h < heads.size(); ++h) {
    if (!status[h])
      return Error{status[h].error().code, "kv head " + std::to_string(h) + ": " + status[h].error().message};
    const auto add = [](std::vector<float>& to, const std::vector<float>& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    add(layer.w1, heads[h].w1);
    add(layer.b1, heads[h].b1);
    add(layer.w2, heads[h].w2);
    add(layer.b2, heads[h].b2);
  }
  return layer;
}

std::vector<std::vector<float>> aged_logits(const AgedRows& rows, int layer, const gate::Ageing& ageing) {
  std::vector<std::vector<float>> logits;
  for (size_t head = 0; head < rows.heads.size(); ++head) {
    std::vector<float> features(rows.heads[head].x.size());
    std::ranges::transform(rows.heads[head].x, features.begin(), f16_to_f32);
    logits.push_back(gate::ageing_logits(ageing, {.layer = layer, .head = static_cast<int>(head)}, features));
  }
  return logits;
}

gate::FitQuality late_quality(std::span<const ShardFile> shards, int layer, const gate::Gate& gate) {
  std::vector<std::vector<float>> said;
  AgedRows rows = aged_rows(shards, layer, gate);
  if (gate.ageing.layers.empty()) {
    said.resize(rows.heads.size());
    for (const ShardFile& shard : shards) {
      const std::vector<std::vector<float>> more = appended_logits(shard, layer, gate);
      for (size_t head = 0; head < said.size(); ++head)
        said[head].insert(said[head].end(), more[head].begin(), more[head].end());
    }
  } else {
    said = aged_logits(rows, layer, gate.ageing);
  }
  gate::FitQuality quality;
  for (size_t head = 0; head < said.size(); ++head) {
    const double line = gate::correlation(said[head], rows.heads[head].y);
    quality.r2.push_back(static_cast<float>(line * line));
    quality.spearman.push_back(static_cast<float>(gate::rank_correlation(said[head], rows.heads[head].y)));
  }
  return quality;
}

}  // namespace kedge::train
