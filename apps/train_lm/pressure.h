// From gate logits to what a training pass lets through, at the keep rate that the pass is to have.
#pragma once

#include <ATen/Tensor.h>

#include <cstdint>
#include <vector>

#include "train_lm/gated_attention.h"

namespace kedge::lm {

// exact: one number is added to all logits of a pass so that its mean keep rate is the wanted one; what learns is the
//   order of the rows of all layers and heads
// layer: the same, a number for each layer: the order of the rows of a layer
// penalty: logits as they are, and a one-sided penalty on the mean keep rate
enum class Pressure { exact, layer, penalty };

struct Draw {
  double keep = 0.5;  // mean keep rate that the pass is to have
  double tau = 1;     // temperature
  double anneal = 0;  // 0: soft gates; 1: rows are there or gone (and learn as if soft)
  double noise = 1;   // scale of logistic noise
  uint64_t seed = 0;  // of the noise
};

// Logistic noise of a layer, [n, n_heads].
at::Tensor logistic_noise(const Draw& draw, int layer, int64_t n, int64_t n_heads, const at::TensorOptions& options);

// Logits with noise and shift -> u in 0..1. The hard part passes gradients on as the soft one does.
at::Tensor keep_of(const at::Tensor& moved, const Draw& draw);

// The shift at which the mean of keep_of(noisy + shift) is draw.keep, by bisection.
double shift_for(const at::Tensor& noisy, const Draw& draw);

// How that shift follows the logits, so that the mean stays: shift' = -(weights . noisy'), from the slopes of the soft
// part; of noisy's shape, sum 1. Without it every gate would learn to open, and the shift take it back.
at::Tensor shift_weights(const at::Tensor& noisy, double shift, const Draw& draw);

}  // namespace kedge::lm
