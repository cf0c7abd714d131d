// What scorers need of a whole head: exact attention weights and the anchor projection. Over the vectors of simd_*.h.
#pragma once

#include <limits>

#include "kernels/gemm_inl.h"

namespace kedge {
namespace {

// Number of rows whose position is at most `position`: a prefix, because positions ascend.
inline int rows_up_to(const KvHeadView& rows, int position) {
  int low = 0;
  int high = rows.n_rows;
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (rows.position(middle) <= position) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// Softmax of w[0 .. n), in place; zeros in w[n .. n_total).
inline void soften_weights(float* w, int n, int n_total) {
  using namespace simd;
  const Vec minus_infinity = set1(-std::numeric_limits<float>::infinity());
  Vec highest = minus_infinity;
  for (int i = 0; i < n; i += kLanes) highest = max(highest, first_or(load_first(w + i, n - i), n - i, minus_infinity));
  const Vec base = set1(reduce_max(highest));
  Vec sum = zero();
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Vec weight = exp(sub(load(w + i), base));
    store(w + i, weight);
    sum = add(sum, weight);
  }
  if (i < n) {
    const Vec weight = exp(first_or(sub(load_first(w + i, n - i), base), n - i, minus_infinity));
    store_first(w + i, weight, n - i);
    sum = add(sum, weight);
  }
  const float total = reduce_add(sum);
  const Vec inverse = set1(total > 0 ? 1 / total : 0.0F);
  for (i = 0; i < n; i += kLanes) store_first(w + i, mul(load_first(w + i, n - i), inverse), n - i);
  fill_floats(w + n, 0, n_total - n);
}

template <RowType kType>
void weights_f32(const KvHeadView& rows, const TileQueries& queries, float* weights) {
  using namespace simd;
  const int d = rows.head_dim;
  const int n = queries.n_queries * queries.group;
  alignas(64) float k[kMaxHeadDim * kStepRows];
  alignas(64) float q[kTileRows * kMaxHeadDim] = {};
  alignas(64) float s[kTileRows * kStepRows];
  for (int row = 0; row < rows.n_rows; row += kStepRows) {
    if (n == 0 || rows.position(row) > queries.positions[queries.n_queries - 1]) break;
    const int n_rows = rows.n_rows - row < kStepRows ? rows.n_rows - row : kStepRows;
    widen_keys<kType>(rows, row, n_rows, k);
    for (int i0 = 0; i0 < n; i0 += kTileRows) {
      const int n_here = n - i0 < kTileRows ? n - i0 : kTileRows;
      if (rows.position(row) > queries.positions[(i0 + n_here - 1) / queries.group]) continue;
      for (int i = 0; i < n_here; ++i) scale_floats(query_row(queries, i0 + i), queries.scale, q + i * d, d);
      gemm<false, 1>({.a = q, .a_row = d, .b = k, .b_step = kStepRows, .c = s, .c_row = kStepRows, .depth = d},
                     kStepRows);
      for (int i = 0; i < n_here; ++i) {
        float* w = weights + static_cast<long>(i0 + i) * rows.n_rows + row;
        for (int j = 0; j < n_rows; j += kLanes) store_first(w + j, load(s + i * kStepRows + j), n_rows - j);
      }
    }
  }
  for (int i = 0; i < n; ++i) {
    const int visible = rows_up_to(rows, queries.positions[i / queries.group]);
    soften_weights(weights + static_cast<long>(i) * rows.n_rows, visible, rows.n_rows);
  }
}

constexpr int kAnchorDepth = 64;                           // anchors multiplied at a time
constexpr int kAnchorStride = padded_rows(kStepRows) + 6;  // 72: keeps the stores of a line aligned to 32 bytes

// score[i] += dot(u[i], v[i]) with U = A^T Y, 64 rows of the head at a time. Columns of `a` are copied to a small
// block first: reading them in place strides by n_rows, and powers of two there collide in the cache.
template <RowType kType>
void anchors_f32(const KvHeadView& rows, const float* a, const float* y, int n, float* score) {
  using namespace simd;
  const int d = rows.head_dim;
  alignas(64) float u[padded_rows(kStepRows) * kMaxHeadDim];
  alignas(64) float v[kStepRows * kMaxHeadDim];
  alignas(64) float part[kAnchorDepth * kAnchorStride] = {};  // f32 [anchors][72]: a[m][row ..]
  for (int row = 0; row < rows.n_rows; row += kStepRows) {
    const int n_rows = rows.n_rows - row < kStepRows ? rows.n_rows - row : kStepRows;
    fill_floats(u, 0, static_cast<long>(padded_rows(kStepRows)) * d);
    for (int m0 = 0; m0 < n; m0 += kAnchorDepth) {
      const int depth = n - m0 < kAnchorDepth ? n - m0 : kAnchorDepth;
      for (int m = 0; m < depth; ++m) {
        const float* from = a + static_cast<long>(m0 + m) * rows.n_rows + row;
        for (int j = 0; j < kStepRows; j += kLanes) store(part + m * kAnchorStride + j, load_first(from + j, n_rows - j));
      }
      for (int i = 0; i < n_rows; i += kTileRows) {
        gemm<true, kAnchorStride>({.a = part + i, .a_row = 1, .b = y + static_cast<long>(m0) * d, .b_step = d,
                                   .c = u + static_cast<long>(i) * d, .c_row = d, .depth = depth}, d);
      }
    }
    widen_values<kType>(rows, row, n_rows, v);
    for (int i = 0; i < n_rows; ++i) {
      Vec sum = zero();
      for (int j = 0; j < d; j += kLanes) sum = fma(load(u + i * d + j), load(v + i * d + j), sum);
      score[row + i] += reduce_add(sum);
    }
  }
}

inline void exp_array(const float* x, float* y, int n) {
  for (int i = 0; i < n; i += simd::kLanes) simd::store_first(y + i, simd::exp(simd::load_first(x + i, n - i)), n - i);
}

}  // namespace
}  // namespace kedge
