// Prefill: a tile of queries over all rows of a head, 64 rows at a time, running maximum and sum (flash attention).
// Over the vectors of simd_*.h.
#pragma once

#include <limits>

#include "kernels/gemm_inl.h"

namespace kedge {
namespace {

struct TileScratch {
  float* q;  // f32 [padded][head_dim], scaled
  float* o;  // f32 [padded][head_dim]
  float* k;  // f32 [head_dim][64]
  float* v;  // f32 [64][head_dim]
  float* s;  // f32 [6][64]
  float* m;  // f32 [padded]
  float* l;  // f32 [padded]
  int n;       // query rows
  int padded;  // to a multiple of 6
};

inline TileScratch set_tile(const TileQueries& queries, int d, float* scratch) {
  TileScratch t;
  t.n = queries.n_queries * queries.group;
  t.padded = padded_rows(t.n);
  t.q = scratch;
  t.o = t.q + static_cast<long>(t.padded) * d;
  t.k = t.o + static_cast<long>(t.padded) * d;
  t.v = t.k + static_cast<long>(kStepRows) * d;
  t.s = t.v + static_cast<long>(kStepRows) * d;
  t.m = t.s + kTileRows * kStepRows;
  t.l = t.m + t.padded;
  fill_floats(t.o, 0, static_cast<long>(t.padded) * d);
  fill_floats(t.m, -std::numeric_limits<float>::infinity(), t.padded);
  fill_floats(t.l, 0, t.padded);
  return t;
}

inline void pack_queries(const TileQueries& queries, int d, const TileScratch& t) {
  for (int i = 0; i < t.n; ++i) scale_floats(query_row(queries, i), queries.scale, t.q + static_cast<long>(i) * d, d);
  fill_floats(t.q + static_cast<long>(t.n) * d, 0, static_cast<long>(t.padded - t.n) * d);
}

// visible[i]: how many of the n_rows rows from `row` on query row i sees. Positions ascend on both sides.
inline void count_visible(const KvHeadView& rows, int row, int n_rows, const TileQueries& queries, int padded,
                          uint8_t* visible) {
  int i = 0;
  int count = 0;
  for (int t = 0; t < queries.n_queries; ++t) {
    while (count < n_rows && rows.position(row + count) <= queries.positions[t]) ++count;
    for (int g = 0; g < queries.group; ++g) visible[i++] = static_cast<uint8_t>(count);
  }
  while (i < padded) visible[i++] = 0;
}

// One row of scores to weights: s f32 [n_vecs * kLanes], the first `visible` (at least 1) count, the rest become 0.
// Returns the factor for the sums so far.
[[gnu::always_inline]] inline float soften_tile_row(float* s, int n_vecs, int visible, float& m, float& l) {
  using namespace simd;
  const Vec minus_infinity = set1(-std::numeric_limits<float>::infinity());
  Vec highest = set1(m);
  if (visible < n_vecs * kLanes) {
    for (int j = 0; j < n_vecs; ++j) {
      const Vec x = first_or(load(s + j * kLanes), visible - j * kLanes, minus_infinity);
      store(s + j * kLanes, x);
      highest = max(highest, x);
    }
  } else {
    for (int j = 0; j < n_vecs; ++j) highest = max(highest, load(s + j * kLanes));
  }
  const float m_new = reduce_max(highest);
  const Vec base = set1(m_new);
  Vec sum = zero();
  for (int j = 0; j < n_vecs; ++j) {
    const Vec weight = exp(sub(load(s + j * kLanes), base));
    store(s + j * kLanes, weight);
    sum = add(sum, weight);
  }
  const float correction = m == m_new ? 1.0F : reduce_max(exp(set1(m - m_new)));
  l = l * correction + reduce_add(sum);
  m = m_new;
  return correction;
}

// Six rows of scores to weights, and their sums so far to the new maximum. n_columns: computed columns of s.
inline void soften_tile(const TileScratch& t, int i0, const uint8_t* visible, int n_columns, int d) {
  for (int i = 0; i < kTileRows; ++i) {
    float* s = t.s + i * kStepRows;
    if (visible[i] == 0) {  // a padding row, or one that sees nothing here
      fill_floats(s, 0, n_columns);
      continue;
    }
    const float correction = soften_tile_row(s, n_columns / simd::kLanes, visible[i], t.m[i0 + i], t.l[i0 + i]);
    float* o = t.o + static_cast<long>(i0 + i) * d;
    if (correction != 1.0F) scale_floats(o, correction, o, d);
  }
}

inline int highest_of_six(const uint8_t* visible) {
  int highest = 0;
  for (int i = 0; i < kTileRows; ++i) highest = visible[i] > highest ? visible[i] : highest;
  return highest;
}

inline void write_tile(const TileQueries& queries, const TileOutput& out, int d, const TileScratch& t) {
  for (int i = 0; i < t.n; ++i) {
    float* y = out.y + i / queries.group * out.row_stride + i % queries.group * out.head_stride;
    scale_floats(t.o + static_cast<long>(i) * d, t.l[i] > 0 ? 1 / t.l[i] : 0.0F, y, d);
  }
}

template <RowType kType>
void tile_f32(const KvHeadView& rows, const TileQueries& queries, const TileOutput& out, float* scratch) {
  const int d = rows.head_dim;
  const TileScratch t = set_tile(queries, d, scratch);
  pack_queries(queries, d, t);
  uint8_t visible[kTileQueries * kMaxGroup + kTileRows];
  for (int row = 0; row < rows.n_rows; row += kStepRows) {
    if (queries.n_queries == 0 || rows.position(row) > queries.positions[queries.n_queries - 1]) break;
    const int n_rows = rows.n_rows - row < kStepRows ? rows.n_rows - row : kStepRows;
    count_visible(rows, row, n_rows, queries, t.padded, visible);
    widen_keys<kType>(rows, row, n_rows, t.k);
    widen_values<kType>(rows, row, n_rows, t.v);
    for (int i = 0; i < t.padded; i += kTileRows) {
      const int depth = highest_of_six(visible + i);
      if (depth == 0) continue;
      const int n_columns = (depth + kBlockRows - 1) / kBlockRows * kBlockRows;
      gemm<false, 1>({.a = t.q + static_cast<long>(i) * d, .a_row = d, .b = t.k, .b_step = kStepRows, .c = t.s,
                      .c_row = kStepRows, .depth = d}, n_columns);
      soften_tile(t, i, visible + i, n_columns, d);
      gemm<true, 1>({.a = t.s, .a_row = kStepRows, .b = t.v, .b_step = d, .c = t.o + static_cast<long>(i) * d,
                     .c_row = d, .depth = depth}, d);
    }
  }
  write_tile(queries, out, d, t);
}

}  // namespace
}  // namespace kedge
