// An ageing stage whose weights learn: that of src/gate/ageing.h, for features that are standardised head by head.
#pragma once

#include <ATen/Tensor.h>

#include <span>
#include <vector>

#include "gate/ageing.h"

namespace kedge::lm {

class LearnedAgeing {
 public:
  // The function that `stage` is. features: [layer] of some rows [n, n_kv_heads, n_features], which say where their
  // means and deviations lie.
  LearnedAgeing(const gate::Ageing& stage, std::span<const at::Tensor> features);
  // standards: as standards() gave them. Error: nothing where their number is another (checked).
  LearnedAgeing(const gate::Ageing& stage, std::span<const float> standards, int n_heads, at::ScalarType type);

  // features [n, n_kv_heads, n_features] -> [n, n_kv_heads]
  at::Tensor logits(int layer, const at::Tensor& features) const;
  gate::Ageing to_ageing() const;        // for features as they come, f32
  std::vector<float> standards() const;  // means and scales of all layers in a row
  static size_t n_standards(const gate::Ageing& stage, int n_heads);

  // Leaves: of each layer w1 [n_kv_heads, width, n_features], b1 [n_kv_heads * width], w2, b2, or w2, b2 of a linear
  // stage. Offsets are vectors: they do not decay.
  std::vector<at::Tensor>& parameters() { return parameters_; }
  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  int64_t n_parameters() const;

 private:
  void read(const gate::Ageing& stage);
  size_t per_layer() const { return info_.width > 0 ? 4 : 2; }
  std::span<const at::Tensor> of_layer(size_t layer) const {
    return std::span(parameters_).subspan(layer * per_layer(), per_layer());
  }

  gate::AgeingInfo info_;
  std::vector<at::Tensor> mean_, scale_;  // [layer]: [n_kv_heads, n_features]
  std::vector<at::Tensor> parameters_;
};

}  // namespace kedge::lm
