// Internal to fitting: the network of one layer, its loss and its gradient.
//
// Hidden units lie in panels of 16, so that a panel's part of every product is one contiguous matrix and one thread's
// work: sums over rows or inputs never cross panels, and sums over panels are taken in their order. Units past the
// width have only zeros, which training leaves.
#pragma once

#include <cstdint>
#include <vector>

#include "base/executor.h"
#include "gate/gate.h"

namespace kedge::gate {

inline constexpr int kPanel = 16;

struct MlpShape {
  int n_embd = 0;
  int width = 0;
  int n_heads = 0;
  int n_panels() const { return (width + kPanel - 1) / kPanel; }
};

struct Mlp {  // parameters, or something for each of them
  explicit Mlp(MlpShape shape);
  MlpShape shape;
  std::vector<float> w1;  // f32 [n_panels][n_embd][16]
  std::vector<float> b1;  // f32 [n_panels][16]
  std::vector<float> w2;  // f32 [n_panels][n_heads][16]
  std::vector<float> b2;  // f32 [n_heads]
};

// Uniform within 1 / sqrt(inputs of the matrix); b2 is 0.
Mlp first_weights(MlpShape shape, uint64_t seed);
Mlp from_layer_gate(const LayerGate& gate, MlpShape shape);
LayerGate to_layer_gate(const Mlp& net);

// What one batch of up to max_rows rows leaves behind.
class MlpPass {
 public:
  MlpPass(MlpShape shape, int max_rows);
  // x f32 [n][n_embd] -> f32 [n][n_heads], valid until the next call.
  const std::vector<float>& forward(const Mlp& net, const float* x, int n, Executor& executor);
  // The mean over rows and heads of (output - y)^2, y f32 [n][n_heads], of the last forward().
  double loss(const float* y, int n) const;
  // Its gradient by every parameter, with the x of the last forward(). `then(panel)` is called when a panel's part is
  // there, by the thread that made it, and may change that panel of the net; b2's part is there before them all.
  template <typename Then>
  void backward(const Mlp& net, const float* x, const float* y, int n, Mlp& gradient, Executor& executor,
                const Then& then) {
    set_errors(y, n, gradient);
    for_each_index(executor, shape_.n_panels(), [&](int panel) {
      backward_panel(net, panel, x, n, gradient);
      then(panel);
    });
  }

 private:
  void set_errors(const float* y, int n, Mlp& gradient);
  void forward_panel(const Mlp& net, int panel, const float* x, int n);
  void backward_panel(const Mlp& net, int panel, const float* x, int n, Mlp& gradient);
  size_t at(int panel) const { return static_cast<size_t>(panel) * static_cast<size_t>(max_rows_) * kPanel; }

  MlpShape shape_;
  int max_rows_;
  std::vector<float> hidden_;  // f32 [n_panels][max_rows][16]
  std::vector<float> slope_;   // the same: derivative of gelu; in backward() the loss's by the hidden sum
  std::vector<float> parts_;   // f32 [n_panels][max_rows][n_heads]: a panel's part of the output
  std::vector<float> out_;     // f32 [max_rows][n_heads]
  std::vector<float> error_;   // f32 [max_rows][n_heads]: the loss's derivative by the output
};

}  // namespace kedge::gate
