#include "train_lm/gated_attention.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <limits>

namespace kedge::lm {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

constexpr int64_t kBlock = 64;  // queries; with the heads of a group as many rows of a product
// A row that is gone may have the largest logit by far: its weight, were it there, is bounded for the gradient.
constexpr double kMostLogit = 20;

// Heads first: [n, n_heads, d] -> [n_heads, n, d]
Tensor by_head(const Tensor& x) { return x.transpose(0, 1).contiguous(); }

// Queries [begin, end) of one kv head's group against rows [0, end).
struct Block {
  int64_t begin, end;
  int64_t group;
  GatedRows rows;
  int64_t n() const { return end - begin; }
  // Columns [sinks, all_gated) are gated for every query of the block, [all_gated, some_gated) for some.
  int64_t all_gated() const { return std::max(rows.sinks, std::min(begin - rows.window + 1, end)); }
  int64_t some_gated() const { return std::max(all_gated(), end - rows.window); }
  Tensor by_query(const Tensor& weights) const { return weights.view({group, n(), weights.size(1)}); }
};

// 1 where query t of the block sees the column through the gate: [n, some_gated - all_gated]
Tensor gated_border(const Block& block, const at::TensorOptions& options) {
  const Tensor t = at::arange(block.begin, block.end, at::kLong).unsqueeze(1);
  const Tensor i = at::arange(block.all_gated(), block.some_gated(), at::kLong).unsqueeze(0);
  return at::ge(t - i, block.rows.window).to(options);
}

// Multiplies weights [group * n, end] by m; u [rows] of the kv head.
void through_gate(const Block& block, const Tensor& border, const Tensor& u, Tensor& weights) {
  const int64_t full = block.all_gated();
  const int64_t some = block.some_gated();
  if (full > block.rows.sinks)
    weights.slice(1, block.rows.sinks, full).mul_(u.slice(0, block.rows.sinks, full));
  if (some > full)
    block.by_query(weights).slice(2, full, some).mul_(1 + border * (u.slice(0, full, some) - 1));
}

// q . k with rows after the query at -infinity: [group * n, end]. q [group, n_all, d], k [n_all, d]
Tensor logits_of(const Block& block, const Tensor& q, const Tensor& k) {
  const Tensor queries = q.slice(1, block.begin, block.end).reshape({-1, q.size(2)});
  Tensor logits = at::mm(queries, k.slice(0, 0, block.end).t());
  const Tensor later = at::full({block.n(), block.n()}, -std::numeric_limits<double>::infinity(), q.options()).triu_(1);
  block.by_query(logits).slice(2, block.begin, block.end).add_(later);
  return logits;
}

struct Attend : Function<Attend> {
  static Tensor forward(AutogradContext* ctx, const Tensor& q_in, const Tensor& k_in, const Tensor& v_in,
                        const c10::optional<Tensor>& gates, int64_t window, int64_t sinks) {
    const int64_t n = q_in.size(0), n_heads = q_in.size(1), d = q_in.size(2), n_kv = k_in.size(1);
    const int64_t group = n_heads / n_kv;
    const Tensor q = by_head(q_in).view({n_kv, group, n, d});
    const Tensor k = by_head(k_in), v = by_head(v_in);
    const Tensor u = gates ? gates->t().contiguous() : Tensor();
    Tensor out = at::empty({n_kv, group, n, d}, q.options());
    Tensor log_sum = at::empty({n_kv, group, n, 1}, q.options());
    for (int64_t begin = 0; begin < n; begin += kBlock) {
      const Block block{begin, std::min(begin + kBlock, n), group, {window, sinks}};
      const Tensor border = u.defined() ? gated_border(block, q.options()) : Tensor();
      for (int64_t h = 0; h < n_kv; ++h) {
        Tensor weights = logits_of(block, q[h], k[h]);
        const Tensor most = weights.amax({1}, true);
        weights.sub_(most).exp_();
        if (u.defined())
          through_gate(block, border, u[h], weights);
        const Tensor sum = weights.sum({1}, true);
        out[h]
            .slice(1, begin, block.end)
            .copy_(at::mm(weights, v[h].slice(0, 0, block.end)).div_(sum).view({group, block.n(), d}));
        log_sum[h].slice(1, begin, block.end).copy_((most + sum.log()).view({group, block.n(), 1}));
      }
    }
    ctx->save_for_backward({q, k, v, u, out, log_sum});
    ctx->saved_data["window"] = window;
    ctx->saved_data["sinks"] = sinks;
    return out.view({n_heads, n, d}).transpose(0, 1).reshape({n, n_heads * d});
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradient) {
    const variable_list saved = ctx->get_saved_variables();
    const Tensor &q = saved[0], &k = saved[1], &v = saved[2], &u = saved[3], &out = saved[4], &log_sum = saved[5];
    const int64_t n_kv = q.size(0), group = q.size(1), n = q.size(2), d = q.size(3);
    const Tensor by_out = gradient[0].view({n, n_kv, group, d}).permute({1, 2, 0, 3}).contiguous();
    const Tensor drift = (by_out * out).sum({3}, true);  // [n_kv, group, n, 1]
    const bool of_rows = ctx->needs_input_grad(1) || ctx->needs_input_grad(2);
    Tensor by_q = at::empty_like(q);
    Tensor by_k = at::zeros_like(k), by_v = at::zeros_like(v);
    Tensor by_u = u.defined() ? at::zeros_like(u) : Tensor();
    for (int64_t begin = 0; begin < n; begin += kBlock) {
      const Block block{begin,
                        std::min(begin + kBlock, n),
                        group,
                        {ctx->saved_data["window"].toInt(), ctx->saved_data["sinks"].toInt()}};
      const Tensor border = u.defined() ? gated_border(block, q.options()) : Tensor();
      const auto part = [&](const Tensor& x) {
        return x.slice(1, block.begin, block.end).reshape({group * block.n(), -1});
      };
      for (int64_t h = 0; h < n_kv; ++h) {
        const Tensor keys = k[h].slice(0, 0, block.end), values = v[h].slice(0, 0, block.end);
        Tensor weights = logits_of(block, q[h], k[h]).sub_(part(log_sum[h]));  // as if every gate were open
        if (u.defined())
          weights.clamp_max_(kMostLogit);
        weights.exp_();
        Tensor by_logit = at::mm(part(by_out[h]), values.t()).sub_(part(drift[h])).mul_(weights);
        if (u.defined()) {
          add_by_u(block, border, by_logit, by_u[h]);
          through_gate(block, border, u[h], by_logit);
        }
        by_q[h].slice(1, begin, block.end).copy_(at::mm(by_logit, keys).view({group, block.n(), d}));
        if (of_rows) {
          if (u.defined())
            through_gate(block, border, u[h], weights);
          by_k[h].slice(0, 0, block.end).addmm_(by_logit.t(), part(q[h]));
          by_v[h].slice(0, 0, block.end).addmm_(weights.t(), part(by_out[h]));
        }
      }
    }
    return {by_q.view({n_kv * group, n, d}).transpose(0, 1),
            of_rows ? by_k.transpose(0, 1) : Tensor(),
            of_rows ? by_v.transpose(0, 1) : Tensor(),
            u.defined() ? by_u.t() : Tensor(),
            Tensor(),
            Tensor()};
  }

  // by_u [rows] += what the gated columns of by_logit [group * n, end] sum to.
  static void add_by_u(const Block& block, const Tensor& border, const Tensor& by_logit, Tensor by_u) {
    const int64_t full = block.all_gated();
    const int64_t some = block.some_gated();
    if (full > block.rows.sinks)
      by_u.slice(0, block.rows.sinks, full).add_(by_logit.slice(1, block.rows.sinks, full).sum(0));
    if (some > full)
      by_u.slice(0, full, some)
          .add_((block.by_query(by_logit).slice(2, full, some) * border).sum(at::IntArrayRef({0, 1})));
  }
};

}  // namespace

Tensor gated_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& u, const GatedRows& rows) {
  // A tensor that is none is no variable of the function.
  const c10::optional<Tensor> gates = u.defined() ? c10::optional<Tensor>(u) : c10::nullopt;
  return Attend::apply(q, k, v, gates, rows.window, rows.sinks);
}

Tensor plain_gated_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& u,
                             const GatedRows& rows) {
  const int64_t n = q.size(0), n_heads = q.size(1), group = n_heads / k.size(1);
  const auto repeated = [&](const Tensor& x) { return x.transpose(0, 1).repeat_interleave(group, 0); };
  const Tensor t = at::arange(n, at::kLong).unsqueeze(1), i = at::arange(n, at::kLong).unsqueeze(0);
  Tensor logits = at::matmul(q.transpose(0, 1), repeated(k).transpose(1, 2));  // [n_heads, n, n]
  if (u.defined()) {
    const Tensor gated = at::logical_and(at::ge(t - i, rows.window), at::ge(i, rows.sinks));
    const Tensor bias = at::log(u).t().repeat_interleave(group, 0).unsqueeze(1);
    logits = logits + at::where(gated, bias, at::zeros({}, bias.options()));
  }
  const Tensor later = at::full({n, n}, -std::numeric_limits<double>::infinity(), q.options()).triu(1);
  return at::matmul(at::softmax(logits + later, 2), repeated(v)).transpose(0, 1).reshape({n, -1});
}

}  // namespace kedge::lm
