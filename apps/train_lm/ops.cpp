#include "train_lm/ops.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

namespace kedge::lm {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

struct RmsNorm : Function<RmsNorm> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight, double eps) {
    const Tensor scale = at::rsqrt(at::mean(x * x, {1}, true) + eps);  // [n, 1]
    ctx->save_for_backward({x, weight, scale});
    return (x * scale).mul_(weight);
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradient) {
    const variable_list saved = ctx->get_saved_variables();
    const Tensor& x = saved[0];
    const Tensor& scale = saved[2];
    const Tensor by_weight = gradient[0] * saved[1];
    const Tensor mean = at::mean(by_weight * x, {1}, true);
    return {(by_weight - x * (scale * scale * mean)).mul_(scale), Tensor(), Tensor()};
  }
};

struct SwiGlu : Function<SwiGlu> {
  static Tensor forward(AutogradContext* ctx, const Tensor& gate_up) {
    ctx->save_for_backward({gate_up});
    const int64_t half = gate_up.size(1) / 2;
    return at::silu(gate_up.narrow(1, 0, half)).mul_(gate_up.narrow(1, half, half));
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradient) {
    const Tensor gate_up = ctx->get_saved_variables()[0];
    const int64_t half = gate_up.size(1) / 2;
    const Tensor gate = gate_up.narrow(1, 0, half);
    const Tensor up = gate_up.narrow(1, half, half);
    const Tensor open = at::sigmoid(gate);
    const Tensor silu = gate * open;
    Tensor out = at::empty_like(gate_up);
    Tensor by_gate = out.narrow(1, 0, half);
    Tensor by_up = out.narrow(1, half, half);
    at::mul_out(by_up, gradient[0], silu);
    // silu' = open + silu (1 - open)
    at::sub_out(by_gate, open, silu * open);
    by_gate.add_(silu).mul_(up).mul_(gradient[0]);
    return {out};
  }
};

Tensor turned(const Tensor& x, const Tensor& cosine, const Tensor& sine, double direction) {
  const int64_t half = x.size(2) / 2;
  const Tensor a = x.narrow(2, 0, half);
  const Tensor b = x.narrow(2, half, half);
  Tensor out = at::empty(x.sizes(), x.options());
  Tensor first = out.narrow(2, 0, half);
  Tensor second = out.narrow(2, half, half);
  at::mul_out(first, a, cosine).addcmul_(b, sine, -direction);
  at::mul_out(second, b, cosine).addcmul_(a, sine, direction);
  return out;
}

struct Rotate : Function<Rotate> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& cosine, const Tensor& sine) {
    ctx->save_for_backward({cosine, sine});
    return turned(x, cosine, sine, 1);
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradient) {
    const variable_list saved = ctx->get_saved_variables();
    return {turned(gradient[0], saved[0], saved[1], -1), Tensor(), Tensor()};
  }
};

}  // namespace

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) { return RmsNorm::apply(x, weight, eps); }
Tensor swiglu(const Tensor& gate_up) { return SwiGlu::apply(gate_up); }
Tensor rotate(const Tensor& x, const Tensor& cosine, const Tensor& sine) { return Rotate::apply(x, cosine, sine); }

}  // namespace kedge::lm
