#include "support/plain_llama.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "ggml.h"

namespace kedge::test {
namespace {

using Row = std::vector<double>;

Row times(const std::vector<float>& matrix, const Row& x) {  // matrix [rows, x.size()]
  const size_t cols = x.size();
  Row y(matrix.size() / cols);
  for (size_t r = 0; r < y.size(); ++r) {
    double sum = 0;
    for (size_t c = 0; c < cols; ++c)
      sum += static_cast<double>(matrix[r * cols + c]) * x[c];
    y[r] = sum;
  }
  return y;
}

Row plus(Row a, const Row& b) {
  for (size_t i = 0; i < a.size(); ++i)
    a[i] += b[i];
  return a;
}

void add_bias(Row& x, const std::vector<float>& bias) {
  for (size_t i = 0; i < bias.size(); ++i)
    x[i] += static_cast<double>(bias[i]);
}

Row rms_norm(const Row& x, const std::vector<float>& weight) {
  const double mean_square = std::inner_product(x.begin(), x.end(), x.begin(), 0.0) / static_cast<double>(x.size());
  const double scale = 1.0 / std::sqrt(mean_square + static_cast<double>(kTinyNormEps));
  Row y(x.size());
  for (size_t i = 0; i < x.size(); ++i)
    y[i] = x[i] * scale * static_cast<double>(weight[i]);
  return y;
}

void round_f16(Row& x) {
  for (double& v : x)
    v = static_cast<double>(ggml_fp16_to_fp32(ggml_fp32_to_fp16(static_cast<float>(v))));
}

}  // namespace

PlainLlama::PlainLlama(const TinyWeights& weights, bool f16_rows)
    : weights_(weights), f16_rows_(f16_rows), k_(weights.layers.size()), v_(weights.layers.size()) {
  if (weights.options.weights != WeightType::f32 || weights.options.rope_scaling == "yarn")
    std::abort();
}

Kept PlainLlama::everything() const {
  std::vector<int32_t> all(static_cast<size_t>(n_tokens_));
  std::iota(all.begin(), all.end(), 0);
  return Kept(weights_.layers.size(), {static_cast<size_t>(weights_.options.n_kv_heads), all});
}

void PlainLlama::rope(Row& x, int n_heads, int position) const {
  const TinyOptions& o = weights_.options;
  const double scale = o.rope_scaling == "linear" ? 1.0 / static_cast<double>(o.rope_factor) : 1.0;
  for (int h = 0; h < n_heads; ++h) {
    for (int i = 0; i < o.head_dim / 2; ++i) {
      double angle = position * scale * std::pow(static_cast<double>(o.rope_base), -2.0 * i / o.head_dim);
      if (!weights_.rope_freqs.empty())
        angle /= static_cast<double>(weights_.rope_freqs[static_cast<size_t>(i)]);
      double* pair = x.data() + h * o.head_dim + 2 * i;
      const double a = pair[0] * std::cos(angle) - pair[1] * std::sin(angle);
      const double b = pair[0] * std::sin(angle) + pair[1] * std::cos(angle);
      pair[0] = a;
      pair[1] = b;
    }
  }
}

Row PlainLlama::attend(size_t layer, const Row& q, int position, const std::vector<std::vector<int32_t>>& kept) const {
  const TinyOptions& o = weights_.options;
  const int group = o.n_heads / o.n_kv_heads;
  Row y(q.size(), 0.0);
  for (int h = 0; h < o.n_heads; ++h) {
    std::vector<int32_t> visible = kept[static_cast<size_t>(h / group)];
    for (int p = n_tokens_; p <= position; ++p)
      visible.push_back(p);  // those of this call
    const double* query = q.data() + h * o.head_dim;
    const int column = h / group * o.head_dim;
    Row weight;
    for (int32_t p : visible) {
      const double* key = k_[layer][static_cast<size_t>(p)].data() + column;
      weight.push_back(std::inner_product(query, query + o.head_dim, key, 0.0) /
                       std::sqrt(static_cast<double>(o.head_dim)));
    }
    const double top = *std::max_element(weight.begin(), weight.end());
    double sum = 0;
    for (double& w : weight)
      sum += w = std::exp(w - top);
    for (size_t r = 0; r < visible.size(); ++r) {
      const double* value = v_[layer][static_cast<size_t>(visible[r])].data() + column;
      for (int d = 0; d < o.head_dim; ++d)
        y[static_cast<size_t>(h * o.head_dim + d)] += weight[r] / sum * value[d];
    }
  }
  return y;
}

std::vector<Row> PlainLlama::run_layer(size_t layer, const std::vector<Row>& x,
                                       const std::vector<std::vector<int32_t>>& kept) {
  const TinyLayer& l = weights_.layers[layer];
  const TinyOptions& o = weights_.options;
  std::vector<Row> out;
  for (size_t t = 0; t < x.size(); ++t) {
    const int position = n_tokens_ + static_cast<int>(t);
    const Row normed = rms_norm(x[t], l.attn_norm);
    Row q = times(l.wq, normed);
    Row k = times(l.wk, normed);
    Row v = times(l.wv, normed);
    add_bias(q, l.bq);
    add_bias(k, l.bk);
    add_bias(v, l.bv);
    rope(q, o.n_heads, position);
    rope(k, o.n_kv_heads, position);
    if (f16_rows_)
      round_f16(k);
    if (f16_rows_)
      round_f16(v);
    k_[layer].push_back(k);
    v_[layer].push_back(v);
    const Row hidden = plus(x[t], times(l.wo, attend(layer, q, position, kept)));
    const Row ffn_in = rms_norm(hidden, l.ffn_norm);
    Row gate = times(l.gate, ffn_in);
    const Row up = times(l.up, ffn_in);
    for (size_t i = 0; i < gate.size(); ++i)
      gate[i] = gate[i] / (1.0 + std::exp(-gate[i])) * up[i];
    out.push_back(plus(hidden, times(l.down, gate)));
  }
  return out;
}

std::vector<std::vector<float>> PlainLlama::append(std::span<const int32_t> tokens, const Kept& kept) {
  const auto n_embd = static_cast<size_t>(weights_.options.n_embd);
  std::vector<Row> x;
  for (int32_t t : tokens) {
    const float* row = weights_.embed.data() + static_cast<size_t>(t) * n_embd;
    x.emplace_back(row, row + n_embd);
  }
  for (size_t layer = 0; layer < weights_.layers.size(); ++layer)
    x = run_layer(layer, x, kept[layer]);
  std::vector<std::vector<float>> logits;
  for (const Row& row : x) {
    const Row y =
        times(weights_.output.empty() ? weights_.embed : weights_.output, rms_norm(row, weights_.output_norm));
    logits.emplace_back(y.begin(), y.end());
  }
  n_tokens_ += static_cast<int>(tokens.size());
  return logits;
}

}  // namespace kedge::test
