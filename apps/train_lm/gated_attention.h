// Attention in which rows beyond the window count as much as their gate lets them:
//
//   weight of row i for query t = e(t,i) m(t,i) / sum over j <= t of e(t,j) m(t,j),   e(t,i) = exp(q_t . k_i)
//   m(t,i) = u_i  where t - i >= window and i >= sinks, else 1
//
// That is log u_i added to the logits, but u may be exactly 0 (a row that is gone), and then still has a gradient:
// what the row would have changed. In blocks of queries; the weights are made again on the way back, so that memory
// grows with the text's length and not with its square.
#pragma once

#include <ATen/Tensor.h>

namespace kedge::lm {

struct GatedRows {
  int64_t window = 32;  // newest rows, which no gate decides about
  int64_t sinks = 4;    // first rows, likewise
  // Rows that some query of n sees through the gate: [sinks, sinks + n_gated).
  int64_t n_gated(int64_t n) const { return n - window > sinks ? n - window - sinks : 0; }
};

// q [n, n_heads, head_dim], already scaled; k, v [n, n_kv_heads, head_dim]; u [n, n_kv_heads] in 0..1, or undefined:
// no gate. Returns [n, n_heads * head_dim].
at::Tensor gated_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& u,
                           const GatedRows& rows);

// The same from the formula, with all n * n weights and gradients by autograd: the oracle.
at::Tensor plain_gated_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& u,
                                 const GatedRows& rows);

}  // namespace kedge::lm
