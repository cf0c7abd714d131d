// The oracle: plain loops, one row at a time, sums in double. Slow and obviously right.
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/attention_targets.h"
#include "kernels/half.h"

namespace kedge {
namespace {

const uint16_t* halves(const std::byte* p) { return reinterpret_cast<const uint16_t*>(p); }

double key_dot(const KvHeadView& rows, int row, const float* q) {
  const uint16_t* block = halves(rows.k_block(row / kBlockRows));
  double sum = 0;
  for (int d = 0; d < rows.head_dim; ++d) {
    sum += static_cast<double>(q[d]) * to_f32(block[k_index(row % kBlockRows, d, rows.type)], rows.type);
  }
  return sum;
}

float value_at(const KvHeadView& rows, int row, int d) {
  const uint16_t* block = halves(rows.v_block(row / kBlockRows));
  return to_f32(block[v_index(row % kBlockRows, d, rows.head_dim, rows.type)], rows.type);
}

// Unnormalised softmax attention of one query over rows [row_begin, row_end) whose position is at most last_position.
struct Softmax {
  double m = -std::numeric_limits<double>::infinity();
  double l = 0;
  std::vector<double> weights;  // [row_end - row_begin], relative to m
};

Softmax softmax_of(const KvHeadView& rows, int row_begin, int row_end, const float* q, float scale, int last_position) {
  Softmax out;
  out.weights.assign(static_cast<size_t>(row_end - row_begin), 0.0);
  std::vector<double> logits(out.weights.size());
  for (int row = row_begin; row < row_end && rows.position(row) <= last_position; ++row) {
    const double logit = key_dot(rows, row, q) * static_cast<double>(scale);
    logits[static_cast<size_t>(row - row_begin)] = logit;
    if (logit > out.m)
      out.m = logit;
  }
  for (int row = row_begin; row < row_end && rows.position(row) <= last_position; ++row) {
    const auto i = static_cast<size_t>(row - row_begin);
    out.weights[i] = std::exp(logits[i] - out.m);
    out.l += out.weights[i];
  }
  return out;
}

void weighted_values(const KvHeadView& rows, int row_begin, const Softmax& softmax, double divisor, float* y) {
  for (int d = 0; d < rows.head_dim; ++d) {
    double sum = 0;
    for (size_t i = 0; i < softmax.weights.size(); ++i) {
      if (softmax.weights[i] != 0) {  // masked rows may hold anything
        sum += softmax.weights[i] * static_cast<double>(value_at(rows, row_begin + static_cast<int>(i), d));
      }
    }
    y[d] = divisor > 0 ? static_cast<float>(sum / divisor) : 0.0F;
  }
}

void attend_segment(const KvHeadView& rows, int row_begin, int row_end, const float* q, int group, float scale,
                    float* partial) {
  float* m = partial;
  float* l = partial + group;
  float* o = partial + 2 * group;
  for (int g = 0; g < group; ++g) {
    const Softmax softmax =
        softmax_of(rows, row_begin, row_end, q + g * rows.head_dim, scale, std::numeric_limits<int>::max());
    m[g] = static_cast<float>(softmax.m);
    l[g] = static_cast<float>(softmax.l);
    weighted_values(rows, row_begin, softmax, 1.0, o + g * rows.head_dim);
  }
}

void attend_tile(const KvHeadView& rows, const TileQueries& queries, const TileOutput& out, float* /*scratch*/) {
  for (int t = 0; t < queries.n_queries; ++t) {
    for (int g = 0; g < queries.group; ++g) {
      const float* q = queries.q + t * queries.row_stride + g * queries.head_stride;
      const Softmax softmax = softmax_of(rows, 0, rows.n_rows, q, queries.scale, queries.positions[t]);
      weighted_values(rows, 0, softmax, softmax.l, out.y + t * out.row_stride + g * out.head_stride);
    }
  }
}

void attention_weights(const KvHeadView& rows, const TileQueries& queries, float* weights) {
  for (int t = 0; t < queries.n_queries; ++t) {
    for (int g = 0; g < queries.group; ++g) {
      const float* q = queries.q + t * queries.row_stride + g * queries.head_stride;
      const Softmax softmax = softmax_of(rows, 0, rows.n_rows, q, queries.scale, queries.positions[t]);
      float* row_out = weights + (static_cast<long>(t) * queries.group + g) * rows.n_rows;
      for (size_t i = 0; i < softmax.weights.size(); ++i) {
        row_out[i] = softmax.l > 0 ? static_cast<float>(softmax.weights[i] / softmax.l) : 0.0F;
      }
    }
  }
}

void anchor_scores(const KvHeadView& rows, const float* a, const float* y, int n, float* score) {
  for (int i = 0; i < rows.n_rows; ++i) {
    double sum = 0;
    for (int m = 0; m < n; ++m) {
      double dot = 0;
      for (int d = 0; d < rows.head_dim; ++d) {
        dot += static_cast<double>(y[m * rows.head_dim + d]) * static_cast<double>(value_at(rows, i, d));
      }
      sum += dot * static_cast<double>(a[static_cast<long>(m) * rows.n_rows + i]);
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
