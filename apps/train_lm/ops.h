// Pieces of a layer whose gradients are written by hand: they keep less for the way back than a chain of small
// operations would, and pass over memory fewer times. Any floating type; the tests run them in f64.
#pragma once

#include <ATen/Tensor.h>

namespace kedge::lm {

// x * weight / sqrt(mean(x^2) + eps) by rows. x [n, n_embd], weight [n_embd] (frozen).
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

// silu(gate) * up of gate_up = [gate | up] [n, 2 * n_ff] -> [n, n_ff]
at::Tensor swiglu(const at::Tensor& gate_up);

// Rotary positions over halves: dimension j turns with dimension j + head_dim / 2.
// x [n, n_heads, head_dim], cosine and sine [n, 1, head_dim / 2]
at::Tensor rotate(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine);

}  // namespace kedge::lm
