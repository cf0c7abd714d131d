#include "train/labels.h"

#include <algorithm>
#include <cmath>

#include "eviction/row_math.h"
#include "eviction/window_scorer.h"

namespace kedge::train {
namespace {

constexpr float kLeastWeight = 1e-6F;
constexpr float kLeastNorm = 1e-6F;

}  // namespace

std::vector<float> future_attention(const eviction::HeadInput& in, int window, QueryRange range) {
  std::vector<float> most(static_cast<size_t>(in.rows.n_rows), 0.0F);
  const auto n_rows = most.size();
  const auto group = static_cast<size_t>(in.group);
  const std::span<const int32_t> positions(in.query_positions, static_cast<size_t>(in.n_window));
  const auto index_of = [&](int32_t position) {
    return static_cast<int>(std::ranges::lower_bound(positions, position) - positions.begin());
  };
  eviction::for_weight_batches(
      in, index_of(range.begin), index_of(range.end), [&](int first, int n, std::span<float> a) {
        size_t n_old = 0;  // rows that were written at least `window` tokens before the query; queries ascend
        for (int t = 0; t < n; ++t) {
          const int32_t newest = in.query_positions[first + t] - window;
          while (n_old < n_rows && in.rows.position(static_cast<int32_t>(n_old)) <= newest)
            ++n_old;
          for (size_t g = 0; g < group; ++g) {
            const float* weight = a.data() + (static_cast<size_t>(t) * group + g) * n_rows;
            for (size_t i = 0; i < n_old; ++i)
              most[i] = std::max(most[i], weight[i]);
          }
        }
      });
  return most;
}

OutputNorm::OutputNorm(std::span<const float> w_o, int group, int head_dim, int n_embd)
    : head_dim_(head_dim), gram_(static_cast<size_t>(head_dim) * static_cast<size_t>(head_dim)) {
  const auto d = static_cast<size_t>(head_dim);
  const auto width = static_cast<size_t>(n_embd);
  for (size_t g = 0; g < static_cast<size_t>(group); ++g) {
    const float* head = w_o.data() + g * d * width;
    for (size_t i = 0; i < d; ++i) {
      for (size_t j = 0; j < d; ++j) {
        double sum = 0;
        for (size_t e = 0; e < width; ++e)
          sum += static_cast<double>(head[i * width + e]) * static_cast<double>(head[j * width + e]);
        gram_[i * d + j] += static_cast<float>(sum / group);
      }
    }
  }
}

// ||W_O v||^2; turned: scratch, the Gram matrix times v
double OutputNorm::square(const float* v, std::vector<float>& turned) const {
  const auto d = static_cast<size_t>(head_dim_);
  turned.assign(d, 0.0F);
  for (size_t i = 0; i < d; ++i) {
    for (size_t j = 0; j < d; ++j)
      turned[j] += gram_[i * d + j] * v[i];
  }
  double square = 0;
  for (size_t i = 0; i < d; ++i)
    square += static_cast<double>(turned[i]) * static_cast<double>(v[i]);
  return std::max(square, 0.0);
}

std::vector<float> OutputNorm::of(const KvHeadView& rows) const {
  const auto d = static_cast<size_t>(head_dim_);
  std::vector<float> v(static_cast<size_t>(rows.n_rows) * d);
  read_rows(rows, 0, rows.n_rows, nullptr, v.data());
  std::vector<float> norms(static_cast<size_t>(rows.n_rows));
  std::vector<float> turned;
  for (size_t row = 0; row < norms.size(); ++row)
    norms[row] = static_cast<float>(std::sqrt(square(v.data() + row * d, turned)));
  return norms;
}

double OutputNorm::mean_square_output(const eviction::HeadInput& in) const {
  constexpr int kEvery = 8;
  const auto d = static_cast<size_t>(head_dim_);
  const auto group = static_cast<size_t>(in.group);
  std::vector<float> turned;
  double sum = 0;
  int64_t n = 0;
  for (int t = 0; t < in.n_window; t += kEvery) {
    for (size_t g = 0; g < group; ++g, ++n)
      sum += square(in.y + (static_cast<size_t>(t) * group + g) * d, turned);
  }
  return n > 0 ? sum / static_cast<double>(n) : 0;
}

RowLabels row_labels(const eviction::HeadInput& in, const OutputNorm& norm_of, const LabelOptions& options,
                     int32_t cut) {
  const auto n_rows = static_cast<size_t>(in.rows.n_rows);
  std::vector<float> late(in.reconstruction.begin(), in.reconstruction.end());
  if (options.label == Label::future)
    late.assign(n_rows, 0.0F);
  std::vector<float> all = late;
  const auto add = [&](QueryRange range, std::vector<float>& weight) {
    const std::vector<float> future = future_attention(in, options.window, range);
    for (size_t i = 0; i < n_rows; ++i)
      weight[i] = std::max(weight[i], future[i]);
  };
  if (options.label != Label::repeat) {
    add({.begin = cut}, late);
    all = late;
    if (cut > 0)
      add({.end = cut}, all);
  }
  std::vector<float> norm = norm_of.of(in.rows);
  if (options.norm == LabelNorm::change) {
    const auto mean = static_cast<float>(norm_of.mean_square_output(in));
    for (float& one : norm)
      one = std::sqrt(one * one + mean);
  }
  for (std::vector<float>* weight : {&all, &late}) {
    for (size_t i = 0; i < n_rows; ++i)
      (*weight)[i] = std::log(std::max((*weight)[i], kLeastWeight)) + std::log(std::max(norm[i], kLeastNorm));
  }
  return {.all = std::move(all), .late = std::move(late)};
}

std::string policy_for(Label label) { return label == Label::future ? "recent" : "kvzip"; }

}  // namespace kedge::train
