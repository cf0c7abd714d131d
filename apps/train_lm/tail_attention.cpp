#include "train_lm/tail_attention.h"

#include <ATen/ATen.h>

#include <limits>

namespace kedge::lm {
namespace {

using at::Tensor;

// A row that is gone may have the largest logit by far: its weight, were it there, is bounded for the gradient.
constexpr double kMostLogit = 20;

// [m, n_heads, d] -> [n_kv, group * m, d]
Tensor by_kv_head(const Tensor& q, int64_t n_kv) {
  const int64_t m = q.size(0), group = q.size(1) / n_kv, d = q.size(2);
  return q.view({m, n_kv, group, d}).permute({1, 2, 0, 3}).reshape({n_kv, group * m, d});
}

// q . k with rows after the query at -infinity.
Tensor logits_of(const Tensor& q, const Tensor& k) {
  const int64_t m = q.size(0), n = k.size(0), n_kv = k.size(1), group = q.size(1) / n_kv;
  const Tensor logits = at::bmm(by_kv_head(q, n_kv), k.permute({1, 2, 0}));
  const Tensor later =
      at::full({m, n}, -std::numeric_limits<double>::infinity(), q.options().requires_grad(false)).triu(n - m + 1);
  return (logits.view({n_kv, group, m, n}) + later).view({n_kv, group * m, n});
}

}  // namespace

Tensor tail_weights(const Tensor& q, const Tensor& k) { return at::softmax(logits_of(q, k), 2); }

Tensor tail_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& u) {
  const int64_t m = q.size(0), n = k.size(0), n_kv = k.size(1), group = q.size(1) / n_kv, d = q.size(2);
  Tensor weights;
  if (u.defined()) {
    const Tensor gates = at::cat({u.t(), at::ones({n_kv, m}, u.options().requires_grad(false))}, 1).unsqueeze(1);
    const Tensor logits = logits_of(q, k);
    const Tensor most = (logits.detach() + gates.detach().log()).amax({2}, true);  // of the rows that are there
    weights = (logits - most).clamp_max(kMostLogit).exp() * gates;
    weights = weights / weights.sum({2}, true);
  } else {
    weights = tail_weights(q, k);
  }
  const Tensor out = at::bmm(weights, v.transpose(0, 1));  // [n_kv, group * m, d]
  return out.view({n_kv, group, m, d}).permute({2, 0, 1, 3}).reshape({m, n_kv * group * d});
}

}  // namespace kedge::lm
