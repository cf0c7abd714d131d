// A gate whose weights learn: those of src/gate/gate.h, for inputs that are standardised layer by layer, so that one
// rate of learning fits all of them.
#pragma once

#include <ATen/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "gate/gate.h"

namespace kedge::lm {

struct Standard {            // x' = (x - mean) * scale
  std::vector<float> mean;   // [n_embd]
  std::vector<float> scale;  // [n_embd]: 1 / deviation; 0 where the input never changes
};

class LearnedGate {
 public:
  // The function that `gate` is.
  LearnedGate(const gate::Gate& gate, std::vector<Standard> inputs, at::ScalarType type);
  // Width of info; random weights, the last ones so small that every row is kept at first (offsets kOpen), but no two
  // rows alike.
  static LearnedGate fresh(const gate::GateInfo& info, std::vector<Standard> inputs, uint64_t seed,
                           at::ScalarType type);
  static constexpr float kOpen = 5;

  // x [n, n_embd] -> [n, n_kv_heads]
  at::Tensor logits(int layer, const at::Tensor& x) const;
  gate::Gate to_gate() const;  // for inputs as they come, f32

  const gate::GateInfo& info() const { return info_; }
  const std::vector<Standard>& inputs() const { return inputs_; }
  // Leaves: of each layer w1, b1, w2, b2, or w2, b2 of a linear gate.
  std::vector<at::Tensor>& parameters() { return parameters_; }
  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  size_t per_layer() const { return info_.width > 0 ? 4 : 2; }
  std::span<const at::Tensor> of_layer(int layer) const {
    return std::span(parameters_).subspan(static_cast<size_t>(layer) * per_layer(), per_layer());
  }
  int64_t n_parameters() const;

 private:
  LearnedGate() = default;
  void standards_as_tensors(at::ScalarType type);

  gate::GateInfo info_;
  std::vector<Standard> inputs_;
  std::vector<at::Tensor> mean_, scale_;  // of inputs_
  std::vector<at::Tensor> parameters_;
};

// AdamW (arXiv 1711.05101, betas .9 and .999); matrices decay, offsets do not.
class AdamW {
 public:
  static constexpr double kDecay = 0.01;
  explicit AdamW(std::span<const at::Tensor> parameters);
  // Gradients are cut to a norm of at most `most` together; returns their norm before. Changes the parameters.
  double step(std::vector<at::Tensor>& parameters, std::vector<at::Tensor>& gradients, double rate, double most);

  std::vector<at::Tensor>& first() { return first_; }
  std::vector<at::Tensor>& second() { return second_; }
  int64_t n_steps() const { return n_steps_; }
  void set_steps(int64_t n) { n_steps_ = n; }

 private:
  std::vector<at::Tensor> first_, second_;  // moments, f32 or f64 as the parameters
  int64_t n_steps_ = 0;
};

}  // namespace kedge::lm
