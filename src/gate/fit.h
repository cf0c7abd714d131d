// Fits the gate of one layer to labels (gate.h has the formulas): on the processor alone, in f32 with the long sums in
// double. A result depends on the examples, the options and the seed, never on the number of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/executor.h"
#include "gate/gate.h"
#include "kedge/error.h"

namespace kedge::gate {

struct Examples {
  int64_t n = 0;  // rows
  int n_embd = 0;
  int n_heads = 0;
  std::span<const uint16_t> x;  // f16 [n][n_embd]: what the gate sees
  std::span<const float> y;     // f32 [n][n_heads]: labels, what the logits should be
};

struct LinearOptions {
  double ridge = 0;  // added to the diagonal of the inputs' correlations: 1 weighs as much as the inputs themselves
};

// Least squares with a penalty on the weights of standardised inputs:
//   min over w:  mean over rows of (y - mean(y) - w . x')^2  +  ridge |w|^2,   x' = (x - mean) / deviation
// Width 0: w2 f32 [n_heads][n_embd] and b2 for the x that is given, not for x'. An input that never changes weighs 0.
// Errors (failed): no rows; a row whose input or label is not a finite number; inputs that are so dependent of each
// other that no penalty, or so small a one, leaves the weights open.
Result<LayerGate> fit_linear(const Examples& examples, const LinearOptions& options, Executor& executor);

struct MlpOptions {
  int width = 96;       // hidden units
  int epochs = 4;       // passes over the examples
  float rate = 2e-3F;   // the first step's; falls to 0 as half a cosine
  float decay = 0.01F;  // AdamW's: a weight loses rate * decay of itself a step; offsets do not
  int batch = 256;      // rows a step
  uint64_t seed = 1;    // of the first weights and of the orders of rows
};

struct EpochReport {
  int epoch = 0;  // 1 ... epochs
  int epochs = 0;
  // Mean squared error over rows and heads, each head's in units of its variance over the training rows: 1 is a
  // constant. `train` is measured while training, row by row before the step that uses the row.
  double train = 0;
  double held_out = 0;
};

// One hidden layer, mean squared error, AdamW (arXiv 1711.05101, betas .9 and .999); inputs and labels are standardised
// for the fit and the gate is for those that are given. Of the epochs the one with the least held-out error is
// returned; `progress` (may be empty) is called after each. Errors (failed): those of fit_linear() but the last, for
// either set; an error that is no number after every epoch.
Result<LayerGate> fit_mlp(const Examples& train, const Examples& held_out, const MlpOptions& options,
                          Executor& executor, const std::function<void(const EpochReport&)>& progress);

struct FitQuality {             // both f32 [n_heads]
  std::vector<float> r2;        // 1 - squared error / squared deviation of the labels; 0 where these are all one
  std::vector<float> spearman;  // rank_correlation() of logits and labels
};

// The gate's logits of all examples in f32: [n_heads][n]. The examples must be finite, with info's input_size and
// n_kv_heads (checked).
std::vector<std::vector<float>> logits_by_head(const LayerGate& gate, const GateInfo& info, const Examples& examples);
// Those logits against the labels.
FitQuality quality(std::span<const std::vector<float>> logits, const Examples& examples);
inline FitQuality quality(const LayerGate& gate, const GateInfo& info, const Examples& examples) {
  return quality(logits_by_head(gate, info, examples), examples);
}

// Pearson's: -1 ... 1; 0 where either side is all one value. Both sides have one length (checked).
double correlation(std::span<const float> a, std::span<const float> b);
// Spearman's: Pearson's correlation of ranks, equal values sharing the mean of theirs. -1 ... 1; 0 where either side is
// all one value. Both sides have one length (checked).
double rank_correlation(std::span<const float> a, std::span<const float> b);

}  // namespace kedge::gate
