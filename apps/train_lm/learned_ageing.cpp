#include "train_lm/learned_ageing.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "base/check.h"
#include "train_lm/tensors.h"

namespace kedge::lm {

using at::Tensor;

LearnedAgeing::LearnedAgeing(const gate::Ageing& stage, std::span<const Tensor> features) : info_(stage.info) {
  const c10::NoGradGuard measured;
  check(features.size() == stage.layers.size(), "features of each layer");
  for (const Tensor& rows : features) {
    const Tensor deviation = rows.std(at::IntArrayRef({0}), false);
    mean_.push_back(rows.mean({0}));
    scale_.push_back(at::where(deviation > 1e-6, 1 / deviation, at::zeros({}, deviation.options())));
  }
  read(stage);
}

LearnedAgeing::LearnedAgeing(const gate::Ageing& stage, std::span<const float> standards, int n_heads,
                             at::ScalarType type)
    : info_(stage.info) {
  check(standards.size() == n_standards(stage, n_heads), "means and scales of each layer, head and feature");
  const size_t each = static_cast<size_t>(n_heads) * info_.features.size();
  for (size_t layer = 0; layer < stage.layers.size(); ++layer) {
    const std::span<const float> own = standards.subspan(2 * layer * each, 2 * each);
    mean_.push_back(as_tensor(own.first(each), {n_heads, info_.n_features()}, type));
    scale_.push_back(as_tensor(own.last(each), {n_heads, info_.n_features()}, type));
  }
  read(stage);
}

size_t LearnedAgeing::n_standards(const gate::Ageing& stage, int n_heads) {
  return 2 * stage.layers.size() * static_cast<size_t>(n_heads) * stage.info.features.size();
}

// w f + b = (w / scale) f' + (b + w mean); a feature that never changes has no f', only its part of the offset
void LearnedAgeing::read(const gate::Ageing& stage) {
  const c10::NoGradGuard by_hand;
  const int64_t n_features = info_.n_features(), width = info_.width;
  for (size_t layer = 0; layer < stage.layers.size(); ++layer) {
    const gate::AgeingLayer& own = stage.layers[layer];
    const int64_t n_heads = mean_[layer].size(0);
    const at::TensorOptions options = mean_[layer].options();
    const Tensor inverse = at::where(scale_[layer] > 0, 1 / scale_[layer], at::zeros({}, options));
    const int64_t units = width > 0 ? width : 1;
    const Tensor first = as_tensor(width > 0 ? own.w1 : own.w2, {n_heads, units, n_features}, options);
    const Tensor offset = as_tensor(width > 0 ? own.b1 : own.b2, {n_heads, units}, options);
    parameters_.push_back(leaf(first * inverse.unsqueeze(1)));
    parameters_.push_back(leaf((offset + (first * mean_[layer].unsqueeze(1)).sum({2})).view({-1})));
    if (width > 0) {
      parameters_.push_back(leaf(as_tensor(own.w2, {n_heads, width}, options)));
      parameters_.push_back(leaf(as_tensor(own.b2, {n_heads}, options)));
    }
  }
}

Tensor LearnedAgeing::logits(int layer, const Tensor& features) const {
  const auto at_layer = static_cast<size_t>(layer);
  const std::span<const Tensor> own = of_layer(at_layer);
  const Tensor inputs = ((features - mean_[at_layer]) * scale_[at_layer]).transpose(0, 1);  // [n_heads, n, n_features]
  const int64_t n_heads = own[0].size(0);
  const Tensor first =
      at::baddbmm(own[1].view({n_heads, 1, -1}), inputs, own[0].transpose(1, 2));  // [n_heads, n, units]
  if (info_.width == 0)
    return first.squeeze(2).t();
  return (at::bmm(at::gelu(first), own[2].unsqueeze(2)).squeeze(2) + own[3].unsqueeze(1)).t();
}

gate::Ageing LearnedAgeing::to_ageing() const {
  const c10::NoGradGuard by_hand;
  gate::Ageing stage{.info = info_, .layers = {}};
  for (size_t layer = 0; layer < mean_.size(); ++layer) {
    const std::span<const Tensor> own = of_layer(layer);
    const Tensor w = own[0] * scale_[layer].unsqueeze(1);
    const Tensor b = own[1] - (w * mean_[layer].unsqueeze(1)).sum({2}).view({-1});
    if (info_.width > 0)
      stage.layers.push_back(
          {.w1 = as_vector(w), .b1 = as_vector(b), .w2 = as_vector(own[2]), .b2 = as_vector(own[3])});
    else
      stage.layers.push_back({.w1 = {}, .b1 = {}, .w2 = as_vector(w), .b2 = as_vector(b)});
  }
  return stage;
}

std::vector<float> LearnedAgeing::standards() const {
  std::vector<float> all;
  for (size_t layer = 0; layer < mean_.size(); ++layer) {
    for (const Tensor& one : {mean_[layer], scale_[layer]}) {
      const std::vector<float> values = as_vector(one);
      all.insert(all.end(), values.begin(), values.end());
    }
  }
  return all;
}

int64_t LearnedAgeing::n_parameters() const { return n_elements(parameters_); }

}  // namespace kedge::lm
