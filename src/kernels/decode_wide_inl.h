// Decode by widening 64 rows at a time to f32: any types, no kernel of its own. What the sets fall back on where they
// have nothing faster. Over the vectors of simd_*.h.
#pragma once

#include "kernels/decode_inl.h"
#include "kernels/gemm_inl.h"
#include "kernels/widen_inl.h"

namespace kedge {
namespace {

// Six query heads (or fewer: the rest is zeros) over rows of a head without a tail.
inline void decode_six(const KvHeadView& rows, int row_begin, int row_end, const DecodeQuery& query, int group,
                       const Partial& out) {
  const int d = rows.head_dim;
  alignas(64) float k[kMaxHeadDim * kStepRows];
  alignas(64) float v[kStepRows * kMaxHeadDim];
  alignas(64) float q[kTileRows * kMaxHeadDim] = {};
  alignas(64) float o[kTileRows * kMaxHeadDim] = {};
  alignas(64) float s[kTileRows * kStepRows];
  alignas(64) float m[16];
  alignas(64) float l[kTileRows * simd::kLanes] = {};
  alignas(64) float correction[16];
  const SoftmaxRows state = {.m = m, .l = l, .correction = correction};
  fill_floats(m, kNoMaximum, 16);
  for (int g = 0; g < group; ++g)
    scale_floats(query.q + g * d, query.scale * kLog2e, q + g * d, d);
  if (is_quantised(rows.type.k))
    turn_rows(q, group, d);
  for (int row = row_begin; row < row_end; row += kStepRows) {
    const int n_rows = min_int(kStepRows, row_end - row);
    const int visible[kTileRows] = {n_rows, n_rows, n_rows, n_rows, n_rows, n_rows};
    const int n_columns = (n_rows + kBlockRows - 1) / kBlockRows * kBlockRows;
    widen_keys(rows, row, n_rows, k);
    widen_values(rows, row, n_rows, v);
    gemm<Start::zero, 1>({.a = q, .a_row = d, .b = k, .b_step = kStepRows, .c = s, .c_row = kStepRows, .depth = d},
                         n_columns);
    soften_rows<kTileRows, false>(s, n_columns / simd::kLanes, visible, state);
    gemm<Start::scaled, 1>(
        {.a = s, .a_row = kStepRows, .b = v, .b_step = d, .c = o, .c_row = d, .depth = n_rows, .factor = correction},
        d);
  }
  if (is_quantised(rows.type.v))
    turn_rows(o, group, d);
  for (int g = 0; g < group; ++g) {
    out.m[g] = row_begin < row_end ? m[g] * kLn2 : -std::numeric_limits<float>::infinity();
    out.l[g] = simd::reduce_add(simd::load(l + g * simd::kLanes));
    scale_floats(o + g * d, 1, out.o + g * d, d);
  }
}

inline void decode_wide(const KvHeadView& rows, int row_begin, int row_end, const float* q, int group, float scale,
                        float* partial) {
  for (int g = 0; g < group; g += kTileRows) {
    const DecodeQuery query = {.q = q + g * rows.head_dim, .scale = scale};
    const Partial out = {.m = partial + g, .l = partial + group + g, .o = partial + 2 * group + g * rows.head_dim};
    decode_six(rows, row_begin, row_end, query, min_int(kTileRows, group - g), out);
  }
}

}  // namespace
}  // namespace kedge
