// A gate from shards: one layer after another, from the rows of all of them.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "gate/fit.h"
#include "train/shard.h"

namespace kedge::train {

// What a gate may see of a row. Names for people: hidden, key-value, access, attention, window, all, echo,
// all-echo.
enum class GateInput {
  hidden,     // what the layer's projections see, when the row is written
  key_value,  // keys before their rotation and values of all kv heads, when the row is written
  access,     // at every eviction: the attention that it has had, its last access, its age
  attention,  // at every eviction: the weights that the newest queries give it
  window,     // hidden when the row is written, and at every eviction all that needs nothing recorded but new queries
  all,        // hidden when the row is written, and at every eviction all that costs no echoes
  echo,       // at every eviction: what the text's own queries look at (session/echo.h), its age
  all_echo,   // all, and echoes
  anchor,     // window, and AnDPro's score of the newest queries
};
std::string append_input(GateInput input);                    // of gate::kInputs
std::vector<gate::Feature> ageing_features(GateInput input);  // empty: no ageing stage

struct FitOptions {
  int width = 80;  // 0: linear
  // Whose append stage is taken as it is, instead of one that is fitted; of the model that the rows are of.
  const gate::Gate* append = nullptr;
  int epochs = 4;
  double ridge = 1e-3;
  uint64_t seed = 1;
};

struct LayerReport {
  int layer = 0;
  gate::FitQuality held_out;  // of the append stage; empty: there is none, or it was given
  // Of what the whole gate says at a cut, beside the labels of what comes after it (shard.h): r2 is that of the best
  // line through the logits, so that gates compare whatever they were fitted to. Empty: no shard was cut.
  gate::FitQuality late;
  double seconds = 0;
};

struct FittedGate {
  gate::Gate gate;
  std::vector<LayerReport> layers;
};

// Fits every layer to the training shards and judges it by the held-out ones: first the append stage of `input`, if it
// has one, then the ageing stage, with the logits of the first among its features where these ask for them. `info` says
// what the gate is for; input and width are taken from the arguments. Where there is an ageing stage, an append stage
// that was fitted elsewhere can be given. Logits of a stage are moved, all by the same, so
// that half of all held-out rows lie above 0 (a keep probability of one half); the thresholds are those of keep shares
// .1 ... .9 in the append stage, which is what they are compared with, or in the only one. Errors (failed): no rows on
// either side, shards of different shapes or without what the input needs, those of fit_linear() and fit_mlp();
// cancelled: `progress`, which is told of every layer that is fitted in the last stage, said false.
using FitProgress = std::function<bool(const LayerReport&)>;
struct Lessons {
  std::span<const ShardFile> train;
  std::span<const ShardFile> held_out;
};
Result<FittedGate> fit_gate(const Lessons& lessons, GateInput input, const gate::GateInfo& info,
                            const FitOptions& options, Executor& executor, const FitProgress& progress);

// Logits as they come have any level: moves the gate's so that half of `logits` (its own, of held-out rows) lie above
// 0, a keep probability of one half, and notes where the shares .1 ... .9 of them lie.
void calibrate(gate::Gate& gate, std::vector<float> logits);

// CSV of what each layer and head explains: gate, stage (append, late), layer, head, r2, spearman.
std::string report_csv(const std::string& name, std::span<const LayerReport> layers);

}  // namespace kedge::train
