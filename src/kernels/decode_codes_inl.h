// Decode over rows whose K and V are both quantised: the loop over steps. Over the vectors of simd_*.h.
#pragma once

#include "kernels/code_step_inl.h"

namespace kedge {
namespace {

// Dots: how codes meet queries and weights; ByteDots (code_bytes_inl.h) or WordDots (code_words_inl.h).
template <class Dots, RowType kK, RowType kV, int G>
void decode_codes_group(const KvHeadView& rows, int row_begin, int row_end, const DecodeQuery& query,
                        const Partial& out) {
  const int d = rows.head_dim;
  const BlockLayout layout = rows.layout();
  alignas(64) float s[G * kStepRows] = {};
  alignas(64) float o[G * kMaxHeadDim];
  alignas(64) float m[16];
  alignas(64) float l[G * simd::kLanes] = {};
  alignas(64) float correction[16];
  int visible[G];
  const SoftmaxRows state = {.m = m, .l = l, .correction = correction};
  typename Dots::template Queries<kK, G> q;
  q.set(query, d);
  fill_floats(o, 0, G * d);
  fill_floats(m, kNoMaximum, 16);
  CodeStep step;
  for (int row = row_begin; row < row_end; row += kStepRows) {
    set_code_step(rows, layout.bytes, row, row_end, step);
    for (int b = 0; b < kStepBlocks; ++b)
      prefetch(step.next[b] + layout.k_scales);
    Dots::score(step, q, d, layout.k_scales, s);
    if (step.n_rows == kStepRows) {
      soften_rows<G, true>(s, kStepVecs, nullptr, state);
    } else {
      for (int g = 0; g < G; ++g)
        visible[g] = step.n_rows;
      soften_rows<G, false>(s, kStepVecs, visible, state);
    }
    Dots::template add_values<kV, G>(step, layout, d, s, correction, o);
  }
  turn_rows(o, G, d);
  for (int g = 0; g < G; ++g) {
    out.m[g] = row_begin < row_end ? m[g] * kLn2 : -std::numeric_limits<float>::infinity();
    out.l[g] = simd::reduce_add(simd::load(l + g * simd::kLanes));
    scale_floats(o + g * d, 1, out.o + g * d, d);
  }
}

// Rows of a head without a tail, of two quantised types.
template <class Dots, RowType kK, RowType kV>
void decode_code_types(const KvHeadView& rows, int row_begin, int row_end, const float* q, int group, float scale,
                       float* partial) {
  static constexpr DecodeFunction kBySize[8] = {
      decode_codes_group<Dots, kK, kV, 1>, decode_codes_group<Dots, kK, kV, 2>, decode_codes_group<Dots, kK, kV, 3>,
      decode_codes_group<Dots, kK, kV, 4>, decode_codes_group<Dots, kK, kV, 5>, decode_codes_group<Dots, kK, kV, 6>,
      decode_codes_group<Dots, kK, kV, 7>, decode_codes_group<Dots, kK, kV, 8>,
  };
  for (int g = 0; g < group; g += 8) {
    const DecodeQuery query = {.q = q + g * rows.head_dim, .scale = scale};
    const Partial out = {.m = partial + g, .l = partial + group + g, .o = partial + 2 * group + g * rows.head_dim};
    kBySize[min_int(8, group - g) - 1](rows, row_begin, row_end, query, out);
  }
}

template <class Dots>
void decode_codes(const KvHeadView& rows, int row_begin, int row_end, const float* q, int group, float scale,
                  float* partial) {
  if (rows.type == RowType::q8)
    return decode_code_types<Dots, RowType::q8, RowType::q8>(rows, row_begin, row_end, q, group, scale, partial);
  if (rows.type == RowType::q4)
    return decode_code_types<Dots, RowType::q4, RowType::q4>(rows, row_begin, row_end, q, group, scale, partial);
  if (rows.type.k == RowType::q8)
    return decode_code_types<Dots, RowType::q8, RowType::q4>(rows, row_begin, row_end, q, group, scale, partial);
  return decode_code_types<Dots, RowType::q4, RowType::q8>(rows, row_begin, row_end, q, group, scale, partial);
}

}  // namespace
}  // namespace kedge
