// One kernel set (see attention.h): the AVX-512 one, with byte dot products where both K and V are quantised. Headers
// with inline functions come before the pragma, so that only our own templates, which have internal linkage, are
// compiled with these instructions. They are instantiated at the end of the file, so the pragma is never switched off
// again.
#include <immintrin.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/attention_targets.h"
#include "kernels/quant.h"

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"))), \
                             apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")
#endif

#include "kernels/simd_avx512.h"

#include "kernels/code_values_inl.h"
#include "kernels/decode_codes_inl.h"

namespace kedge {
namespace avx512vnni {

void attend_segment(const KvHeadView& rows, int row_begin, int row_end, const float* q, int group, float scale,
                    float* partial) {
  const bool in_tail = rows.n_tail > 0 && row_begin >= rows.n_body();
  if (in_tail || !is_quantised(rows.type.k) || !is_quantised(rows.type.v))
    return avx512::attend_segment(rows, row_begin, row_end, q, group, scale, partial);
  return decode_codes<ByteDots>(rows.body(), row_begin, row_end, q, group, scale, partial);
}

}  // namespace avx512vnni

const AttentionKernels kAvx512VnniKernels = {
    .name = "avx512vnni",
    .attend_segment = avx512vnni::attend_segment,
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
