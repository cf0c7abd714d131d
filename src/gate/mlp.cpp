#include "gate/mlp.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "base/check.h"
#include "gate/gemm.h"

namespace kedge::gate {
namespace {

constexpr float kSqrtHalf = 0.70710678F;
constexpr float kNormalDensity = 0.39894228F;  // 1 / sqrt(2 pi)

// Where unit `unit`'s weight for input or head `i` of `n` lies.
size_t index_of(size_t unit, size_t i, size_t n) { return (unit / kPanel * n + i) * kPanel + unit % kPanel; }

// `sum` f32 [n * 16] := gelu(sum); slope := gelu'(sum)
void gelu(float* sum, float* slope, int n) {
  for (int i = 0; i < n * kPanel; ++i) {
    const float x = sum[i];
    const float below = 0.5F + 0.5F * std::erf(x * kSqrtHalf);
    sum[i] = x * below;
    slope[i] = below + x * kNormalDensity * std::exp(-0.5F * x * x);
  }
}

}  // namespace

Mlp::Mlp(MlpShape of) : shape(of) {
  const size_t n_units = static_cast<size_t>(shape.n_panels()) * kPanel;
  w1.resize(n_units * static_cast<size_t>(shape.n_embd));
  b1.resize(n_units);
  w2.resize(n_units * static_cast<size_t>(shape.n_heads));
  b2.resize(static_cast<size_t>(shape.n_heads));
}

Mlp first_weights(MlpShape shape, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto draw = [&](int n_inputs) {
    const double uniform = static_cast<double>(random() >> 11) * 0x1p-52 - 1;
    return static_cast<float>(uniform / std::sqrt(n_inputs));
  };
  LayerGate gate;
  for (int i = 0; i < shape.width * shape.n_embd; ++i)
    gate.w1.push_back(draw(shape.n_embd));
  for (int i = 0; i < shape.width; ++i)
    gate.b1.push_back(draw(shape.n_embd));
  for (int i = 0; i < shape.n_heads * shape.width; ++i)
    gate.w2.push_back(draw(shape.width));
  gate.b2.resize(static_cast<size_t>(shape.n_heads));
  return from_layer_gate(gate, shape);
}

Mlp from_layer_gate(const LayerGate& gate, MlpShape shape) {
  Mlp net(shape);
  const auto n_embd = static_cast<size_t>(shape.n_embd);
  const auto width = static_cast<size_t>(shape.width);
  const auto n_heads = static_cast<size_t>(shape.n_heads);
  check(gate.w1.size() == width * n_embd && gate.b1.size() == width && gate.w2.size() == n_heads * width &&
            gate.b2.size() == n_heads,
        "mlp: the gate's shape");
  for (size_t unit = 0; unit < width; ++unit) {
    net.b1[unit] = gate.b1[unit];
    for (size_t i = 0; i < n_embd; ++i)
      net.w1[index_of(unit, i, n_embd)] = gate.w1[unit * n_embd + i];
    for (size_t head = 0; head < n_heads; ++head)
      net.w2[index_of(unit, head, n_heads)] = gate.w2[head * width + unit];
  }
  net.b2 = gate.b2;
  return net;
}

LayerGate to_layer_gate(const Mlp& net) {
  const auto n_embd = static_cast<size_t>(net.shape.n_embd);
  const auto width = static_cast<size_t>(net.shape.width);
  const auto n_heads = static_cast<size_t>(net.shape.n_heads);
  LayerGate gate{.w1 = std::vector<float>(width * n_embd),
                 .b1 = std::vector<float>(net.b1.begin(), net.b1.begin() + net.shape.width),
                 .w2 = std::vector<float>(n_heads * width),
                 .b2 = net.b2};
  for (size_t unit = 0; unit < width; ++unit) {
    for (size_t i = 0; i < n_embd; ++i)
      gate.w1[unit * n_embd + i] = net.w1[index_of(unit, i, n_embd)];
    for (size_t head = 0; head < n_heads; ++head)
      gate.w2[head * width + unit] = net.w2[index_of(unit, head, n_heads)];
  }
  return gate;
}

MlpPass::MlpPass(MlpShape shape, int max_rows) : shape_(shape), max_rows_(max_rows) {
  hidden_.resize(at(shape.n_panels()));
  slope_.resize(at(shape.n_panels()));
  out_.resize(static_cast<size_t>(max_rows) * static_cast<size_t>(shape.n_heads));
  error_.resize(out_.size());
  parts_.resize(out_.size() * static_cast<size_t>(shape.n_panels()));
}

void MlpPass::forward_panel(const Mlp& net, int panel, const float* x, int n) {
  const int64_t n_embd = shape_.n_embd;
  const int n_heads = shape_.n_heads;
  float* hidden = hidden_.data() + at(panel);
  for (int row = 0; row < n; ++row)
    std::copy_n(net.b1.data() + panel * kPanel, kPanel, hidden + row * kPanel);
  gemm({.m = n,
        .n = kPanel,
        .k = shape_.n_embd,
        .a = x,
        .a_row = n_embd,
        .b = net.w1.data() + panel * n_embd * kPanel,
        .b_row = kPanel,
        .c = hidden,
        .c_row = kPanel,
        .add = true});
  gelu(hidden, slope_.data() + at(panel), n);
  float* part = parts_.data() + static_cast<size_t>(panel) * out_.size();
  const float* w2 = net.w2.data() + int64_t{panel} * n_heads * kPanel;
  for (int row = 0; row < n; ++row) {
    for (int head = 0; head < n_heads; ++head) {
      float sum = 0;
      for (int i = 0; i < kPanel; ++i)
        sum += hidden[row * kPanel + i] * w2[head * kPanel + i];
      part[row * n_heads + head] = sum;
    }
  }
}

const std::vector<float>& MlpPass::forward(const Mlp& net, const float* x, int n, Executor& executor) {
  check(n <= max_rows_, "mlp: rows in a pass");
  for_each_index(executor, shape_.n_panels(), [&](int panel) { forward_panel(net, panel, x, n); });
  const auto n_heads = static_cast<size_t>(shape_.n_heads);
  for (size_t i = 0; i < static_cast<size_t>(n) * n_heads; ++i) {
    out_[i] = net.b2[i % n_heads];
    for (size_t panel = 0; panel < static_cast<size_t>(shape_.n_panels()); ++panel)
      out_[i] += parts_[panel * out_.size() + i];
  }
  return out_;
}

double MlpPass::loss(const float* y, int n) const {
  double sum = 0;
  for (int i = 0; i < n * shape_.n_heads; ++i) {
    const double error = double{out_[static_cast<size_t>(i)]} - double{y[i]};
    sum += error * error;
  }
  return sum / (n * shape_.n_heads);
}

void MlpPass::backward_panel(const Mlp& net, int panel, const float* x, int n, Mlp& gradient) {
  const int64_t n_embd = shape_.n_embd;
  const int n_heads = shape_.n_heads;
  const float* w2 = net.w2.data() + int64_t{panel} * n_heads * kPanel;
  float* by_w2 = gradient.w2.data() + int64_t{panel} * n_heads * kPanel;
  float* by_b1 = gradient.b1.data() + int64_t{panel} * kPanel;
  std::fill_n(by_w2, n_heads * kPanel, 0.0F);
  std::fill_n(by_b1, kPanel, 0.0F);
  for (int row = 0; row < n; ++row) {
    const float* hidden = hidden_.data() + at(panel) + int64_t{row} * kPanel;
    float* slope = slope_.data() + at(panel) + int64_t{row} * kPanel;
    float by_hidden[kPanel] = {};
    for (int head = 0; head < n_heads; ++head) {
      const float error = error_[static_cast<size_t>(row) * static_cast<size_t>(n_heads) + static_cast<size_t>(head)];
      for (int i = 0; i < kPanel; ++i) {
        by_hidden[i] += error * w2[head * kPanel + i];
        by_w2[head * kPanel + i] += error * hidden[i];
      }
    }
    for (int i = 0; i < kPanel; ++i) {
      slope[i] *= by_hidden[i];
      by_b1[i] += slope[i];
    }
  }
  gemm({.m = shape_.n_embd,
        .n = kPanel,
        .k = n,
        .a = x,
        .a_row = 1,
        .a_column = n_embd,
        .b = slope_.data() + at(panel),
        .b_row = kPanel,
        .c = gradient.w1.data() + panel * n_embd * kPanel,
        .c_row = kPanel});
}

void MlpPass::set_errors(const float* y, int n, Mlp& gradient) {
  const auto n_heads = static_cast<size_t>(shape_.n_heads);
  const float scale = 2.0F / static_cast<float>(n * shape_.n_heads);
  std::fill(gradient.b2.begin(), gradient.b2.end(), 0.0F);
  for (size_t i = 0; i < static_cast<size_t>(n) * n_heads; ++i) {
    error_[i] = scale * (out_[i] - y[i]);
    gradient.b2[i % n_heads] += error_[i];
  }
}

}  // namespace kedge::gate
