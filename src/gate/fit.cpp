// How well a gate's logits follow the labels.
#include "gate/fit.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "gate/gemm.h"
#include "gate/mlp.h"
#include "gate/standardise.h"

namespace kedge::gate {
namespace {

constexpr int kRowsAtOnce = 256;

// f64 [n]: ranks from 0, equal values the mean of theirs.
std::vector<double> ranks_of(std::span<const float> values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (size_t first = 0; first < order.size();) {
    size_t end = first + 1;
    while (end < order.size() && values[order[end]] == values[order[first]])
      ++end;
    for (size_t i = first; i < end; ++i)
      ranks[order[i]] = static_cast<double>(first + end - 1) / 2;
    first = end;
  }
  return ranks;
}

double pearson(const std::vector<double>& a, const std::vector<double>& b) {
  const double n = static_cast<double>(a.size());
  const double mean_a = std::accumulate(a.begin(), a.end(), 0.0) / n;
  const double mean_b = std::accumulate(b.begin(), b.end(), 0.0) / n;
  double both = 0;
  double square_a = 0;
  double square_b = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    both += (a[i] - mean_a) * (b[i] - mean_b);
    square_a += (a[i] - mean_a) * (a[i] - mean_a);
    square_b += (b[i] - mean_b) * (b[i] - mean_b);
  }
  return square_a > 0 && square_b > 0 ? both / std::sqrt(square_a * square_b) : 0;
}

// f32 [n][n_heads], n rows of x f32 [n][n_embd].
std::vector<float> linear_logits(const LayerGate& gate, const std::vector<float>& x, int n, int n_embd) {
  const int n_heads = static_cast<int>(gate.b2.size());
  std::vector<float> out;
  for (int row = 0; row < n; ++row)
    out.insert(out.end(), gate.b2.begin(), gate.b2.end());
  std::vector<float> w(gate.w2.size());  // [n_embd][n_heads]
  for (size_t i = 0; i < w.size(); ++i)
    w[i] = gate.w2[i % gate.b2.size() * static_cast<size_t>(n_embd) + i / gate.b2.size()];
  gemm({.m = n,
        .n = n_heads,
        .k = n_embd,
        .a = x.data(),
        .a_row = n_embd,
        .b = w.data(),
        .b_row = n_heads,
        .c = out.data(),
        .c_row = n_heads,
        .add = true});
  return out;
}

double r_squared(std::span<const float> logits, std::span<const float> labels) {
  const double n = static_cast<double>(labels.size());
  const double mean = std::accumulate(labels.begin(), labels.end(), 0.0) / n;
  double error = 0;
  double deviation = 0;
  for (size_t i = 0; i < labels.size(); ++i) {
    error += std::pow(double{labels[i]} - double{logits[i]}, 2);
    deviation += std::pow(double{labels[i]} - mean, 2);
  }
  return deviation > 0 ? 1 - error / deviation : 0;
}

}  // namespace

double correlation(std::span<const float> a, std::span<const float> b) {
  check(a.size() == b.size(), "correlation: two lengths");
  return pearson({a.begin(), a.end()}, {b.begin(), b.end()});
}

double rank_correlation(std::span<const float> a, std::span<const float> b) {
  check(a.size() == b.size(), "rank_correlation: two lengths");
  return pearson(ranks_of(a), ranks_of(b));
}

std::vector<std::vector<float>> logits_by_head(const LayerGate& gate, const GateInfo& info, const Examples& examples) {
  check(input_size(info) == examples.n_embd && info.model.n_kv_heads == examples.n_heads, "logits: two shapes");
  check(check_examples(examples, "examples").ok(), "logits: examples are finite");
  SerialExecutor serial;
  const MlpShape shape{.n_embd = examples.n_embd, .width = info.width, .n_heads = examples.n_heads};
  const Mlp net = info.width > 0 ? from_layer_gate(gate, shape) : Mlp(shape);
  MlpPass pass(shape, kRowsAtOnce);
  std::vector<float> x(static_cast<size_t>(kRowsAtOnce) * static_cast<size_t>(examples.n_embd));
  std::vector<std::vector<float>> out(static_cast<size_t>(examples.n_heads));
  for (int64_t first = 0; first < examples.n; first += kRowsAtOnce) {
    const int n = static_cast<int>(std::min<int64_t>(kRowsAtOnce, examples.n - first));
    const uint16_t* halves = examples.x.data() + first * examples.n_embd;
    std::transform(halves, halves + int64_t{n} * examples.n_embd, x.begin(), widen);
    const std::vector<float> logits =
        info.width > 0 ? pass.forward(net, x.data(), n, serial) : linear_logits(gate, x, n, examples.n_embd);
    for (size_t i = 0; i < static_cast<size_t>(n) * out.size(); ++i)
      out[i % out.size()].push_back(logits[i]);
  }
  return out;
}

FitQuality quality(std::span<const std::vector<float>> logits, const Examples& examples) {
  FitQuality out;
  for (size_t head = 0; head < logits.size(); ++head) {
    std::vector<float> labels;
    for (size_t i = head; i < examples.y.size(); i += logits.size())
      labels.push_back(examples.y[i]);
    out.r2.push_back(static_cast<float>(r_squared(logits[head], labels)));
    out.spearman.push_back(static_cast<float>(rank_correlation(logits[head], labels)));
  }
  return out;
}

}  // namespace kedge::gate
