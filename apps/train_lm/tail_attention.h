// Attention of a text's last tokens, in which the rows before them count as much as their gates let them: what a cache
// that was evicted once, before those tokens, still knows.
//
//   weight of row i for query t  ~  exp(q_t . k_i) u_i   of rows before the tail;  exp(q_t . k_i)   of its own, i <= t
#pragma once

#include <ATen/Tensor.h>

namespace kedge::lm {

// q [m, n_heads, head_dim], already scaled, of the last m tokens; k, v [n, n_kv_heads, head_dim] of all; u [n - m,
// n_kv_heads] in 0..1, or undefined: all ones. Returns [m, n_heads * head_dim]. A row with u = 0 still has a gradient:
// what it would have changed.
at::Tensor tail_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& u);

// Softmax weights of the last m tokens over all n rows: [n_kv_heads, group * m, n], queries of a head side by side.
at::Tensor tail_weights(const at::Tensor& q, const at::Tensor& k);

}  // namespace kedge::lm
