// One text read with gates in the way: what that costs the model's predictions, and how each weight of the gates
// changes it.
#pragma once

#include <ATen/Tensor.h>

#include <optional>
#include <vector>

#include "train_lm/frozen_model.h"
#include "train_lm/learned_gate.h"
#include "train_lm/learned_lora.h"
#include "train_lm/lm_loss.h"
#include "train_lm/pressure.h"

namespace kedge::lm {

struct PassOptions {
  GatedRows gated;
  bool from_full = true;  // loss: KL to the full cache, else the cross-entropy of the text
  Pressure pressure = Pressure::exact;
  double lambda = 10;  // of the penalty
  // Rows (keys, values, gate inputs) are those of a reading with the full cache, as when a prompt is read layer by
  // layer and evicted after; else those of the gated stream itself, as when the cache is evicted all along. An adapter
  // learns by the latter alone: it makes keys and values of its own.
  bool full_rows = false;
  bool recompute = false;  // layers are run again on the way back, instead of keeping what they computed
  bool needs_full() const { return from_full || full_rows || pressure == Pressure::exact; }
};

struct Lesson {
  at::Tensor tokens;  // i64 [n]
  at::Tensor weight;  // [n]: how much the prediction at each position counts, sum 1; none before the first gated one
};

// Every position from the first that sees a gated row on, alike; the last one has no next token and counts for KL only.
at::Tensor even_weight(int64_t n, const PassOptions& options, const at::TensorOptions& type);

struct FullReading {
  at::Tensor hidden;  // [n, n_embd]: what the output matrix is multiplied with
  // [layer] of the gate [n, n_kv_heads], with gradients to its parameters; empty without one
  std::vector<at::Tensor> logits;
  std::vector<LayerRows> rows;  // [layer]; empty unless asked for
};
struct FullOptions {
  const LearnedGate* gate = nullptr;
  bool rows = false;
  const LearnedLora* lora = nullptr;  // the model with an adapter, instead of as it is
};
FullReading read_in_full(const FrozenModel& model, const at::Tensor& tokens, const FullOptions& options);

// What learns.
struct Learned {
  const LearnedGate& gate;
  const LearnedLora* lora = nullptr;  // of no rank: as if there were none
  std::optional<LayerLora> adapter(const FrozenModel& model, int layer) const;
};
struct Gradients {  // of its parameters
  std::vector<at::Tensor> gate, lora;
};
Gradients zero_gradients(const Learned& learned);

struct PassResult {
  double lm_loss = 0;
  double loss = 0;  // with the penalty
  double keep = 0;  // mean over layers, heads and gated rows
  std::vector<double> layer_keep;
};

class Pass {
 public:
  Pass(const FrozenModel& model, const PassOptions& options) : model_(model), options_(options) {}
  const PassOptions& options() const { return options_; }

  // full: of the model without an adapter; needed where the options say so. gradients: added to; nullptr: none wanted.
  PassResult run(const Learned& learned, const Lesson& lesson, const FullReading* full, const Draw& draw,
                 Gradients* gradients) const;

 private:
  struct State;
  struct Segment;
  void set_exact_shift(State& state) const;
  at::Tensor let_through(State& state, Segment& segment, int layer, const at::Tensor& x) const;
  Segment run_segment(State& state, int layer, const at::Tensor& x, bool with_gradient) const;
  double head(State& state, const at::Tensor& x, at::Tensor* by_x) const;
  void go_back(State& state, at::Tensor by_x, double by_keep, Gradients& gradients) const;
  void follow_shift(const State& state, double by_shift, Gradients& gradients) const;

  const FrozenModel& model_;
  PassOptions options_;
};

}  // namespace kedge::lm
