#include "train_lm/learned_gate.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <cmath>

#include "base/check.h"
#include "eval/random.h"
#include "train_lm/tensors.h"

namespace kedge::lm {

using at::Tensor;

void LearnedGate::standards_as_tensors(at::ScalarType type) {
  for (const Standard& one : inputs_) {
    mean_.push_back(as_tensor(one.mean, {info_.model.n_embd}, type));
    scale_.push_back(as_tensor(one.scale, {info_.model.n_embd}, type));
  }
}

LearnedGate::LearnedGate(const gate::Gate& gate, std::vector<Standard> inputs, at::ScalarType type)
    : info_(gate.info), inputs_(std::move(inputs)) {
  const int64_t n_embd = info_.model.n_embd, n_heads = info_.model.n_kv_heads, width = info_.width;
  check(inputs_.size() == gate.layers.size(), "a standard for each layer");
  standards_as_tensors(type);
  for (size_t layer = 0; layer < gate.layers.size(); ++layer) {
    const gate::LayerGate& own = gate.layers[layer];
    // w x + b = (w / scale) x' + (b + w mean); an input that never changes has no x', only its part of the offset
    const Tensor inverse = at::where(scale_[layer] > 0, 1 / scale_[layer], at::zeros({}, scale_[layer].options()));
    const Tensor first = as_tensor(width > 0 ? own.w1 : own.w2, {width > 0 ? width : n_heads, n_embd}, type);
    const Tensor offset = as_tensor(width > 0 ? own.b1 : own.b2, {width > 0 ? width : n_heads}, type);
    parameters_.push_back(leaf(first * inverse));
    parameters_.push_back(leaf(offset + at::mv(first, mean_[layer])));
    if (width > 0) {
      parameters_.push_back(leaf(as_tensor(own.w2, {n_heads, width}, type)));
      parameters_.push_back(leaf(as_tensor(own.b2, {n_heads}, type)));
    }
  }
}

LearnedGate LearnedGate::fresh(const gate::GateInfo& info, std::vector<Standard> inputs, uint64_t seed,
                               at::ScalarType type) {
  LearnedGate gate;
  gate.info_ = info;
  gate.inputs_ = std::move(inputs);
  gate.standards_as_tensors(type);
  const int64_t n_embd = info.model.n_embd, n_heads = info.model.n_kv_heads, width = info.width;
  for (int layer = 0; layer < info.model.n_layers; ++layer) {
    eval::Random random(seed, "gate " + std::to_string(layer));
    const auto drawn = [&](int64_t rows, int64_t cols, double most) {
      std::vector<float> values(static_cast<size_t>(rows * cols));
      for (float& one : values)
        one = static_cast<float>((static_cast<double>(random.next() >> 11) * 0x1p-52 - 1) * most);
      return leaf(as_tensor(values, {rows, cols}, type));
    };
    if (width > 0) {
      gate.parameters_.push_back(drawn(width, n_embd, 1 / std::sqrt(n_embd)));
      gate.parameters_.push_back(leaf(at::zeros({width}, type)));
    }
    const int64_t hidden = width > 0 ? width : n_embd;
    gate.parameters_.push_back(drawn(n_heads, hidden, 0.01 / std::sqrt(hidden)));
    gate.parameters_.push_back(leaf(at::full({n_heads}, kOpen, type)));
  }
  return gate;
}

Tensor LearnedGate::logits(int layer, const Tensor& x) const {
  const auto at_layer = static_cast<size_t>(layer);
  const std::span<const Tensor> own = of_layer(layer);
  const Tensor w = own[0] * scale_[at_layer];
  const Tensor first = at::addmm(own[1] - at::mv(w, mean_[at_layer]), x, w.t());
  return info_.width > 0 ? at::addmm(own[3], at::gelu(first), own[2].t()) : first;
}

gate::Gate LearnedGate::to_gate() const {
  const c10::NoGradGuard frozen;
  gate::Gate gate{.info = info_, .layers = {}, .thresholds = {}};
  for (int layer = 0; layer < info_.model.n_layers; ++layer) {
    const auto at_layer = static_cast<size_t>(layer);
    const std::span<const Tensor> own = of_layer(layer);
    const Tensor w = own[0] * scale_[at_layer];
    const Tensor b = own[1] - at::mv(w, mean_[at_layer]);
    if (info_.width > 0)
      gate.layers.push_back({.w1 = as_vector(w), .b1 = as_vector(b), .w2 = as_vector(own[2]), .b2 = as_vector(own[3])});
    else
      gate.layers.push_back({.w1 = {}, .b1 = {}, .w2 = as_vector(w), .b2 = as_vector(b)});
  }
  return gate;
}

int64_t LearnedGate::n_parameters() const { return n_elements(parameters_); }

AdamW::AdamW(std::span<const Tensor> parameters) {
  for (const Tensor& one : parameters) {
    first_.push_back(at::zeros_like(one.detach()));
    second_.push_back(at::zeros_like(one.detach()));
  }
}

double AdamW::step(std::vector<Tensor>& parameters, std::vector<Tensor>& gradients, double rate, double most) {
  constexpr double kFirst = 0.9, kSecond = 0.999, kSmall = 1e-8;
  const c10::NoGradGuard frozen;
  double square = 0;
  for (const Tensor& one : gradients)
    square += at::sum(one * one, at::kDouble).item<double>();
  const double norm = std::sqrt(square);
  const double cut = norm > most ? most / norm : 1;
  ++n_steps_;
  const double first_share = 1 - std::pow(kFirst, static_cast<double>(n_steps_));
  const double second_share = 1 - std::pow(kSecond, static_cast<double>(n_steps_));
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Tensor gradient = gradients[i] * cut;
    first_[i].mul_(kFirst).add_(gradient, 1 - kFirst);
    second_[i].mul_(kSecond).addcmul_(gradient, gradient, 1 - kSecond);
    Tensor data = parameters[i].detach();  // shares its memory
    if (data.dim() > 1)
      data.mul_(1 - rate * kDecay);
    data.addcdiv_(first_[i], (second_[i] / second_share).sqrt_().add_(kSmall), -rate / first_share);
  }
  return norm;
}

}  // namespace kedge::lm
