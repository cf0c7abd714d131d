// The rows of shards as examples, and the ageing stage of a layer: a network of its own for each kv head, fitted to
// what the rows' features were at a cut and what was wanted of them after it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/executor.h"
#include "gate/fit.h"
#include "train/fit_gate.h"
#include "train/shard.h"

namespace kedge::train {

inline constexpr int kAgeingWidth = 16;  // hidden units of a head

// One layer's rows of several shards, side by side.
struct Rows {
  int n_inputs = 0;
  int n_heads = 0;
  std::vector<uint16_t> x;  // f16 [n][n_inputs]
  std::vector<float> y;     // f32 [n][n_heads]
  gate::Examples examples() const {
    return {.n = static_cast<int64_t>(y.size()) / n_heads, .n_embd = n_inputs, .n_heads = n_heads, .x = x, .y = y};
  }
};
// What the append stage of `info` sees, and the labels.
Rows rows_of(std::span<const ShardFile> shards, int layer, const gate::GateInfo& info);

struct AgedRows {
  std::vector<Rows> heads;  // [kv head], each with one label; x is the features
};
// Of the rows before the shards' cuts: the features that the gate's ageing stage asks for, in its order, and the late
// labels. The gate has its append stage, if any.
AgedRows aged_rows(std::span<const ShardFile> shards, int layer, const gate::Gate& gate);

// Hidden units as kAgeingWidth, or none where options.width is 0. Errors: those of fit_linear() and fit_mlp().
Result<gate::AgeingLayer> fit_ageing_layer(const AgedRows& train, const AgedRows& held_out, const FitOptions& options,
                                           Executor& executor);
// f32 [kv head][n]
std::vector<std::vector<float>> aged_logits(const AgedRows& rows, int layer, const gate::Ageing& ageing);

// Of what the whole gate says of the rows before the cuts, beside the late labels (LayerReport::late).
gate::FitQuality late_quality(std::span<const ShardFile> shards, int layer, const gate::Gate& gate);

}  // namespace kedge::train
