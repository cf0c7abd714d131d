// Prefill: a tile of queries over all rows of a head, 64 rows at a time, running maximum and sum (flash attention).
// Over the vectors of simd_*.h.
#pragma once

#include "kernels/gemm_inl.h"
#include "kernels/softmax_inl.h"
#include "kernels/widen_inl.h"

namespace kedge {
namespace {

struct TileScratch {
  float* q;    // f32 [padded][head_dim], scaled, in units of log 2
  float* o;    // f32 [padded][head_dim]
  float* k;    // f32 [head_dim][64]
  float* v;    // f32 [64][head_dim]
  float* s;    // f32 [6][64]
  float* m;    // f32 [padded]
  float* l;    // f32 [padded][kLanes]
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
  t.l = t.m + round_to_line(t.padded);
  fill_floats(t.o, 0, static_cast<long>(t.padded) * d);
  fill_floats(t.m, kNoMaximum, t.padded);
  fill_floats(t.l, 0, static_cast<long>(t.padded) * simd::kLanes);
  return t;
}

inline void pack_queries(const TileQueries& queries, int d, const TileScratch& t) {
  const float factor = queries.scale * kLog2e;
  for (int i = 0; i < t.n; ++i)
    scale_floats(query_row(queries, i), factor, t.q + static_cast<long>(i) * d, d);
  fill_floats(t.q + static_cast<long>(t.n) * d, 0, static_cast<long>(t.padded - t.n) * d);
}

// visible[i]: how many of the n_rows rows from `row` on query row i sees. Positions ascend on both sides.
inline void count_visible(const KvHeadView& rows, int row, int n_rows, const TileQueries& queries, int padded,
                          int* visible) {
  int i = 0;
  int count = 0;
  for (int t = 0; t < queries.n_queries; ++t) {
    while (count < n_rows && rows.position(row + count) <= queries.positions[t])
      ++count;
    for (int g = 0; g < queries.group; ++g)
      visible[i++] = count;
  }
  while (i < padded)
    visible[i++] = 0;
}

// Six rows of scores to weights. n_columns: computed columns of s.
inline void soften_tile(const TileScratch& t, int i0, const int* visible, int n_columns, float* correction) {
  const SoftmaxRows state = {.m = t.m + i0, .l = t.l + static_cast<long>(i0) * simd::kLanes, .correction = correction};
  for (int i = 0; i < kTileRows; ++i) {
    if (visible[i] == kStepRows)
      continue;
    return soften_rows<kTileRows, false>(t.s, n_columns / simd::kLanes, visible, state);
  }
  soften_rows<kTileRows, true>(t.s, kStepVecs, visible, state);
}

inline int highest_of_six(const int* visible) {
  int highest = 0;
  for (int i = 0; i < kTileRows; ++i)
    highest = visible[i] > highest ? visible[i] : highest;
  return highest;
}

inline void write_tile(const TileQueries& queries, const TileOutput& out, int d, const TileScratch& t) {
  for (int i = 0; i < t.n; ++i) {
    float* y = out.y + i / queries.group * out.row_stride + i % queries.group * out.head_stride;
    const float l = simd::reduce_add(simd::load(t.l + static_cast<long>(i) * simd::kLanes));
    scale_floats(t.o + static_cast<long>(i) * d, l > 0 ? 1 / l : 0.0F, y, d);
  }
}

// The rows of a head without a tail. Quantised keys are met by turned queries; outputs are turned back behind quantised
// values, so that the next part adds to plain ones.
inline void tile_part(const KvHeadView& rows, const TileQueries& queries, const TileScratch& t) {
  const int d = rows.head_dim;
  if (rows.n_rows == 0 || queries.n_queries == 0 || rows.position(0) > queries.positions[queries.n_queries - 1])
    return;
  pack_queries(queries, d, t);
  if (is_quantised(rows.type.k))
    turn_rows(t.q, t.n, d);
  int visible[kTileQueries * kMaxGroup + kTileRows];
  alignas(64) float correction[16];
  for (int row = 0; row < rows.n_rows; row += kStepRows) {
    if (rows.position(row) > queries.positions[queries.n_queries - 1])
      break;
    const int n_rows = rows.n_rows - row < kStepRows ? rows.n_rows - row : kStepRows;
    count_visible(rows, row, n_rows, queries, t.padded, visible);
    widen_keys(rows, row, n_rows, t.k);
    widen_values(rows, row, n_rows, t.v);
    for (int i = 0; i < t.padded; i += kTileRows) {
      const int depth = highest_of_six(visible + i);
      if (depth == 0)
        continue;
      const int n_columns = (depth + kBlockRows - 1) / kBlockRows * kBlockRows;
      gemm<Start::zero, 1>({.a = t.q + static_cast<long>(i) * d,
                            .a_row = d,
                            .b = t.k,
                            .b_step = kStepRows,
                            .c = t.s,
                            .c_row = kStepRows,
                            .depth = d},
                           n_columns);
      soften_tile(t, i, visible + i, n_columns, correction);
      gemm<Start::scaled, 1>({.a = t.s,
                              .a_row = kStepRows,
                              .b = t.v,
                              .b_step = d,
                              .c = t.o + static_cast<long>(i) * d,
                              .c_row = d,
                              .depth = depth,
                              .factor = correction},
                             d);
    }
  }
  if (is_quantised(rows.type.v))
    turn_rows(t.o, t.n, d);
}

inline void tile_f32(const KvHeadView& rows, const TileQueries& queries, const TileOutput& out, float* scratch) {
  const TileScratch t = set_tile(queries, rows.head_dim, scratch);
  tile_part(rows.body(), queries, t);
  tile_part(rows.tail(), queries, t);
  write_tile(queries, out, rows.head_dim, t);
}

}  // namespace
}  // namespace kedge
