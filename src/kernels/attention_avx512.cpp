// One kernel set (see attention.h). Headers with inline functions come before the pragma, so that only our own
// templates, which have internal linkage, are compiled with these instructions. They are instantiated at the end of
// the file, so the pragma is never switched off again.
#include <immintrin.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/attention_targets.h"
#include "kernels/quant.h"

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl"))), \
                             apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")
#endif

#include "kernels/simd_avx512.h"

#include "kernels/code_words_inl.h"
#include "kernels/decode_codes_inl.h"
#include "kernels/decode_wide_inl.h"
#include "kernels/scoring_inl.h"
#include "kernels/tile_inl.h"

namespace kedge {
namespace avx512 {

void attend_segment(const KvHeadView& rows, int row_begin, int row_end, const float* q, int group, float scale,
                    float* partial) {
  if (rows.n_tail > 0 && row_begin >= rows.n_body()) {
    return decode<RowType::f16, F32Scores>(rows.tail(), row_begin - rows.n_body(), row_end - rows.n_body(), q, group,
                                           scale, partial);
  }
  if (rows.type == RowType::f16)
    return decode<RowType::f16, F32Scores>(rows, row_begin, row_end, q, group, scale, partial);
  if (rows.type == RowType::bf16)
    return decode<RowType::bf16, F32Scores>(rows, row_begin, row_end, q, group, scale, partial);
  if (is_quantised(rows.type.k) && is_quantised(rows.type.v))
    return decode_codes<WordDots>(rows.body(), row_begin, row_end, q, group, scale, partial);
  return decode_wide(rows.body(), row_begin, row_end, q, group, scale, partial);
}

void attend_tile(const KvHeadView& rows, const TileQueries& queries, const TileOutput& out, float* scratch) {
  return tile_f32(rows, queries, out, scratch);
}

void attention_weights(const KvHeadView& rows, const TileQueries& queries, float* weights) {
  return weights_f32(rows, queries, weights);
}

void anchor_scores(const KvHeadView& rows, const float* a, const float* y, int n, float* score) {
  return anchors_f32(rows, a, y, n, score);
}

void exp2_floats(const float* x, float* y, int n) { exp2_array(x, y, n); }

}  // namespace avx512

const AttentionKernels kAvx512Kernels = {
    .name = "avx512",
    .attend_segment = avx512::attend_segment,
    .merge_partials = merge_partials,
    .attend_tile = avx512::attend_tile,
    .attention_weights = avx512::attention_weights,
    .anchor_scores = avx512::anchor_scores,
    .exp2_floats = avx512::exp2_floats,
};

}  // namespace kedge

#ifdef __clang__
#pragma clang attribute pop
#endif
