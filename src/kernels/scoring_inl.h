// What scorers need of a whole head: exact attention weights and the anchor projection. Over the vectors of simd_*.h.
#pragma once

#include <limits>

#include "kernels/gemm_inl.h"
#include "kernels/softmax_inl.h"
#include "kernels/widen_inl.h"

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

inline float highest_of(const float* w, int n) {
  using namespace simd;
  const Vec minus_infinity = set1(-std::numeric_limits<float>::infinity());
  Vec highest[4] = {minus_infinity, minus_infinity, minus_infinity, minus_infinity};
  int i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j)
      highest[j] = max(highest[j], load(w + i + j * kLanes));
  }
  for (; i < n; i += kLanes)
    highest[0] = max(highest[0], first_or(load_first(w + i, n - i), n - i, minus_infinity));
  return reduce_max(max(max(highest[0], highest[1]), max(highest[2], highest[3])));
}

// Softmax of w[0 .. n) (in units of log 2), in place; zeros in w[n .. n_total).
inline void soften_weights(float* w, int n, int n_total) {
  using namespace simd;
  const Vec base = set1(highest_of(w, n));
  Vec sum[2] = {zero(), zero()};
  int i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      const Vec weight = exp2(sub(load(w + i + j * kLanes), base));
      store(w + i + j * kLanes, weight);
      sum[j] = add(sum[j], weight);
    }
  }
  for (; i < n; i += kLanes) {
    const Vec x = sub(load_first(w + i, n - i), base);
    const Vec weight = exp2(first_or(x, n - i, set1(-std::numeric_limits<float>::infinity())));
    store_first(w + i, weight, n - i);
    sum[0] = add(sum[0], weight);
  }
  const float total = reduce_add(add(sum[0], sum[1]));
  const Vec inverse = set1(total > 0 ? 1 / total : 0.0F);
  for (i = 0; i + kLanes <= n; i += kLanes)
    store(w + i, mul(load(w + i), inverse));
  if (i < n)
    store_first(w + i, mul(load_first(w + i, n - i), inverse), n - i);
  fill_floats(w + n, 0, n_total - n);
}

// Logits of the rows of a head without a tail, whose first row is row `first` of n_total.
inline void logits_part(const KvHeadView& rows, int first, int n_total, const TileQueries& queries, float* weights) {
  using namespace simd;
  const int d = rows.head_dim;
  const int n = queries.n_queries * queries.group;
  const float factor = queries.scale * kLog2e;
  alignas(64) float k[kMaxHeadDim * kStepRows];
  alignas(64) float q[kTileRows * kMaxHeadDim] = {};
  alignas(64) float s[kTileRows * kStepRows];
  for (int row = 0; row < rows.n_rows; row += kStepRows) {
    if (n == 0 || rows.position(row) > queries.positions[queries.n_queries - 1])
      break;
    const int n_rows = rows.n_rows - row < kStepRows ? rows.n_rows - row : kStepRows;
    widen_keys(rows, row, n_rows, k);
    for (int i0 = 0; i0 < n; i0 += kTileRows) {
      const int n_here = n - i0 < kTileRows ? n - i0 : kTileRows;
      if (rows.position(row) > queries.positions[(i0 + n_here - 1) / queries.group])
        continue;
      for (int i = 0; i < n_here; ++i)
        scale_floats(query_row(queries, i0 + i), factor, q + i * d, d);
      if (is_quantised(rows.type.k))
        turn_rows(q, n_here, d);
      gemm<Start::zero, 1>({.a = q, .a_row = d, .b = k, .b_step = kStepRows, .c = s, .c_row = kStepRows, .depth = d},
                           kStepRows);
      for (int i = 0; i < n_here; ++i) {
        float* w = weights + static_cast<long>(i0 + i) * n_total + first + row;
        if (n_rows == kStepRows) {
          for (int j = 0; j < kStepRows; j += kLanes)
            store(w + j, load(s + i * kStepRows + j));
        } else {
          for (int j = 0; j < n_rows; j += kLanes)
            store_first(w + j, load(s + i * kStepRows + j), n_rows - j);
        }
      }
    }
  }
}

inline void weights_f32(const KvHeadView& rows, const TileQueries& queries, float* weights) {
  logits_part(rows.body(), 0, rows.n_rows, queries, weights);
  logits_part(rows.tail(), rows.n_body(), rows.n_rows, queries, weights);
  for (int i = 0; i < queries.n_queries * queries.group; ++i) {
    const int visible = rows_up_to(rows, queries.positions[i / queries.group]);
    soften_weights(weights + static_cast<long>(i) * rows.n_rows, visible, rows.n_rows);
  }
}

constexpr int kAnchorDepth = 64;   // anchors multiplied at a time
constexpr int kAnchorStride = 80;  // floats: whole cache lines, and not a power of two

// part f32 [depth][80] = a[m][row .. row + n_rows), zeros behind; asks for the next 64 columns of the same lines.
inline void copy_anchor_columns(const float* a, int depth, int n_total, int row, int n_rows, float* part) {
  using namespace simd;
  for (int m = 0; m < depth; ++m) {
    const float* from = a + static_cast<long>(m) * n_total + row;
    float* to = part + m * kAnchorStride;
    if (n_rows == kStepRows) {
      for (int j = 0; j < kStepRows; j += 16) {
        _mm_prefetch(reinterpret_cast<const char*>(from + kStepRows + j), _MM_HINT_T0);
      }
      for (int j = 0; j < kStepRows; j += kLanes)
        store(to + j, load(from + j));
    } else {
      for (int j = 0; j < kStepRows; j += kLanes)
        store(to + j, load_first(from + j, n_rows - j));
    }
  }
}

// score[i] += dot(u[i], v[i]) with U = A^T Y, 64 rows of the head at a time. Columns of `a` are copied to a small
// block first: reading them in place strides by n_rows, and powers of two there collide in the cache.
// rows: without a tail, `a` and score from its first row on, a row of `a` every n_total floats.
inline void anchors_part(const KvHeadView& rows, int n_total, const float* a, const float* y, int n, float* score) {
  using namespace simd;
  const int d = rows.head_dim;
  alignas(64) float u[padded_rows(kStepRows) * kMaxHeadDim];
  alignas(64) float v[kStepRows * kMaxHeadDim];
  alignas(64) float part[kAnchorDepth * kAnchorStride] = {};  // f32 [anchors][80]: a[m][row ..]
  for (int row = 0; row < rows.n_rows; row += kStepRows) {
    const int n_rows = rows.n_rows - row < kStepRows ? rows.n_rows - row : kStepRows;
    for (int m0 = 0; m0 < n; m0 += kAnchorDepth) {
      const int depth = n - m0 < kAnchorDepth ? n - m0 : kAnchorDepth;
      copy_anchor_columns(a + static_cast<long>(m0) * n_total, depth, n_total, row, n_rows, part);
      for (int i = 0; i < n_rows; i += kTileRows) {
        const GemmTile t = {.a = part + i,
                            .a_row = 1,
                            .b = y + static_cast<long>(m0) * d,
                            .b_step = d,
                            .c = u + static_cast<long>(i) * d,
                            .c_row = d,
                            .depth = depth};
        if (m0 == 0) {
          gemm<Start::zero, kAnchorStride>(t, d);
        } else {
          gemm<Start::sum, kAnchorStride>(t, d);
        }
      }
    }
    widen_values(rows, row, n_rows, v);
    if (is_quantised(rows.type.v))
      turn_rows(u, n_rows, d);
    for (int i = 0; i < n_rows; ++i) {
      Vec sum = zero();
      for (int j = 0; j < d; j += kLanes)
        sum = fma(load(u + i * d + j), load(v + i * d + j), sum);
      score[row + i] += reduce_add(sum);
    }
  }
}

inline void anchors_f32(const KvHeadView& rows, const float* a, const float* y, int n, float* score) {
  if (n == 0)
    return;
  anchors_part(rows.body(), rows.n_rows, a, y, n, score);
  anchors_part(rows.tail(), rows.n_rows, a + rows.n_body(), y, n, score + rows.n_body());
}

inline void exp2_array(const float* x, float* y, int n) {
  for (int i = 0; i < n; i += simd::kLanes)
    simd::store_first(y + i, simd::exp2(simd::load_first(x + i, n - i)), n - i);
}

}  // namespace
}  // namespace kedge
