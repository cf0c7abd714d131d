// A gate from shards: one layer after another, from the rows of all of them.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "gate/fit.h"
#include "train/shard.h"

namespace kedge::train {

struct FitOptions {
  int width = 80;  // 0: linear
  int epochs = 4;
  double ridge = 1e-3;
  uint64_t seed = 1;
};

struct LayerReport {
  int layer = 0;
  gate::FitQuality held_out;
  double seconds = 0;
};

struct FittedGate {
  gate::Gate gate;
  std::vector<LayerReport> layers;
};

// Fits every layer to the training shards and judges it by the held-out ones. `info` says what the gate is for; its
// width is taken from the options. Logits are moved, all by the same, so that half of all held-out rows lie above 0
// (a keep probability of one half); the thresholds are those of keep shares .1 ... .9. Errors (failed): no rows on
// either side, shards of different shapes, those of fit_linear() and fit_mlp(); cancelled: `progress` said false.
using FitProgress = std::function<bool(const LayerReport&)>;
Result<FittedGate> fit_gate(std::span<const ShardFile> train, std::span<const ShardFile> held_out,
                            const gate::GateInfo& info, const FitOptions& options, Executor& executor,
                            const FitProgress& progress);

// Logits as they come have any level: moves the gate's so that half of `logits` (its own, of held-out rows) lie above
// 0, a keep probability of one half, and notes where the shares .1 ... .9 of them lie.
void calibrate(gate::Gate& gate, std::vector<float> logits);

// CSV of what each layer and head explains: gate, layer, head, r2, spearman.
std::string report_csv(const std::string& name, std::span<const LayerReport> layers);

}  // namespace kedge::train
