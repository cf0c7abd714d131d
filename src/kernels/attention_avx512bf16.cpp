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
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16"))), \
                             apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")
#endif

#include "kernels/simd_avx512.h"

#include "kernels/bf16_dot_inl.h"

namespace kedge {
namespace {

void attend_segment(const KvHeadView& rows, int row_begin, int row_end, const float* q, int group, float scale,
                    float* partial) {
  if (rows.type != RowType::bf16 || rows.n_tail > 0)
    return avx512vnni::attend_segment(rows, row_begin, row_end, q, group, scale, partial);
  return decode<RowType::bf16, Bf16Scores>(rows, row_begin, row_end, q, group, scale, partial);
}

void attend_tile(const KvHeadView& rows, const TileQueries& queries, const TileOutput& out, float* scratch) {
  if (rows.type != RowType::bf16 || rows.n_tail > 0)
    return avx512::attend_tile(rows, queries, out, scratch);
  return tile_bf16(rows, queries, out, scratch);
}

}  // namespace

// Scoring stays in f32: it orders rows, and near ties must not depend on rounded queries.
const AttentionKernels kAvx512Bf16Kernels = {
    .name = "avx512bf16",
    .attend_segment = attend_segment,
    .merge_partials = merge_partials,
    .attend_tile = attend_tile,
    .attention_weights = avx512::attention_weights,
    .anchor_scores = avx512::anchor_scores,
    .exp2_floats = avx512::exp2_floats,
};

}  // namespace kedge

#ifdef __clang__
#pragma clang attribute pop
#endif
