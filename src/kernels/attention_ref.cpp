// The oracle: plain loops, one row at a time, sums in double. Slow and obviously right.
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/attention_targets.h"

namespace kedge {
namespace {

// Rows [begin, end) as f32: read_rows has its own test, against the indices that kv_view.h and quant.h state.
struct Rows {
  Rows(const KvHeadView& rows, int begin, int end, bool keys, bool values) : d(static_cast<size_t>(rows.head_dim)) {
    const size_t n = static_cast<size_t>(end - begin) * d;
    k.resize(keys ? n : 0);
    v.resize(values ? n : 0);
    read_rows(rows, begin, end, keys ? k.data() : nullptr, values ? v.data() : nullptr);
  }
  size_t d;
  std::vector<float> k, v;
};

double dot(const float* x, const float* y, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i)
    sum += static_cast<double>(x[i]) * static_cast<double>(y[i]);
  return sum;
}

// Unnormalised softmax attention of one query over the first n_visible rows of n.
struct Softmax {
  double m = -std::numeric_limits<double>::infinity();
  double l = 0;
  std::vector<double> weights;  // [n], relative to m
};

Softmax softmax_of(const Rows& rows, size_t n, size_t n_visible, const float* q, float scale) {
  Softmax out;
  out.weights.assign(n, 0.0);
  for (size_t i = 0; i < n_visible; ++i) {
    out.weights[i] = dot(q, &rows.k[i * rows.d], rows.d) * static_cast<double>(scale);
    if (out.weights[i] > out.m)
      out.m = out.weights[i];
  }
  for (size_t i = 0; i < n_visible; ++i) {
    out.weights[i] = std::exp(out.weights[i] - out.m);
    out.l += out.weights[i];
  }
  return out;
}

size_t visible_rows(const KvHeadView& rows, int last_position) {
  int n = 0;
  while (n < rows.n_rows && rows.position(n) <= last_position)
    ++n;
  return static_cast<size_t>(n);
}

void weighted_values(const Rows& rows, const Softmax& softmax, double divisor, float* y) {
  for (size_t d = 0; d < rows.d; ++d) {
    double sum = 0;
    for (size_t i = 0; i < softmax.weights.size(); ++i)
      sum += softmax.weights[i] * static_cast<double>(rows.v[i * rows.d + d]);
    y[d] = divisor > 0 ? static_cast<float>(sum / divisor) : 0.0F;
  }
}

void attend_segment(const KvHeadView& view, int row_begin, int row_end, const float* q, int group, float scale,
                    float* partial) {
  const Rows rows(view, row_begin, row_end, true, true);
  const auto n = static_cast<size_t>(row_end - row_begin);
  for (int g = 0; g < group; ++g) {
    const Softmax softmax = softmax_of(rows, n, n, q + g * view.head_dim, scale);
    partial[g] = static_cast<float>(softmax.m);
    partial[group + g] = static_cast<float>(softmax.l);
    weighted_values(rows, softmax, 1.0, partial + 2 * group + g * view.head_dim);
  }
}

void attend_tile(const KvHeadView& view, const TileQueries& queries, const TileOutput& out, float* /*scratch*/) {
  const Rows rows(view, 0, view.n_rows, true, true);
  for (int t = 0; t < queries.n_queries; ++t) {
    const size_t n_visible = visible_rows(view, queries.positions[t]);
    for (int g = 0; g < queries.group; ++g) {
      const float* q = queries.q + t * queries.row_stride + g * queries.head_stride;
      const Softmax softmax = softmax_of(rows, static_cast<size_t>(view.n_rows), n_visible, q, queries.scale);
      weighted_values(rows, softmax, softmax.l, out.y + t * out.row_stride + g * out.head_stride);
    }
  }
}

void attention_weights(const KvHeadView& view, const TileQueries& queries, float* weights) {
  const Rows rows(view, 0, view.n_rows, true, false);
  for (int t = 0; t < queries.n_queries; ++t) {
    const size_t n_visible = visible_rows(view, queries.positions[t]);
    for (int g = 0; g < queries.group; ++g) {
      const float* q = queries.q + t * queries.row_stride + g * queries.head_stride;
      const Softmax softmax = softmax_of(rows, static_cast<size_t>(view.n_rows), n_visible, q, queries.scale);
      float* row_out = weights + (static_cast<long>(t) * queries.group + g) * view.n_rows;
      for (size_t i = 0; i < softmax.weights.size(); ++i) {
        row_out[i] = softmax.l > 0 ? static_cast<float>(softmax.weights[i] / softmax.l) : 0.0F;
      }
    }
  }
}

void anchor_scores(const KvHeadView& view, const float* a, const float* y, int n, float* score) {
  const Rows rows(view, 0, view.n_rows, false, true);
  for (int i = 0; i < view.n_rows; ++i) {
    double sum = 0;
    for (int m = 0; m < n; ++m) {
      sum += dot(y + m * view.head_dim, &rows.v[static_cast<size_t>(i) * rows.d], rows.d) *
             static_cast<double>(a[static_cast<long>(m) * view.n_rows + i]);
    }
    score[i] += static_cast<float>(sum);
  }
}

void exp2_floats(const float* x, float* y, int n) {
  for (int i = 0; i < n; ++i)
    y[i] = std::exp2(x[i]);
}

}  // namespace

const AttentionKernels kRefKernels = {
    .name = "ref",
    .attend_segment = attend_segment,
    .merge_partials = merge_partials,
    .attend_tile = attend_tile,
    .attention_weights = attention_weights,
    .anchor_scores = anchor_scores,
    .exp2_floats = exp2_floats,
};

}  // namespace kedge
