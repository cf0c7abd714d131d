// Weights times the values of quantised rows, in bytes (code_bytes_inl.h).
#pragma once

#include "kernels/code_scores_inl.h"

namespace kedge {
namespace {

// Weights of one step times the scales of one channel group, as integers.
template <RowType kType, int G>
struct CodeWeights {
  alignas(64) uint8_t part[kParts<kType>][G][kStepRows];  // q8: u8, the low byte last; q4: i8
  float scale[G];
  int32_t sum[G];  // q4: of the integers

  // p: f32 [G][64].
  [[gnu::always_inline]] inline void set(const CodeStep& step, size_t scales_at, const float* p) {
    __m512 row_scale[kStepBlocks];
#pragma GCC unroll 4
    for (int b = 0; b < kStepBlocks; ++b) {
      // A slot without a row may hold any scale, NaN too.
      row_scale[b] =
          simd::first_or(simd::load_f16(step.block[b] + scales_at), step.n_rows - b * kBlockRows, simd::zero());
    }
#pragma GCC unroll 8
    for (int g = 0; g < G; ++g) {
      __m512 w[kStepBlocks];
      __m512 largest = simd::zero();
#pragma GCC unroll 4
      for (int b = 0; b < kStepBlocks; ++b) {
        w[b] = simd::mul(simd::load(p + g * kStepRows + b * kBlockRows), row_scale[b]);
        largest = simd::max(largest, kType == RowType::q8 ? w[b] : _mm512_abs_ps(w[b]));
      }
      constexpr float kReach = kType == RowType::q8 ? 65535 : 127;
      const float most = simd::reduce_max(largest);
      const __m512 inverse = simd::set1(most > 0 ? kReach / most : 0.0F);
      scale[g] = most / kReach;
      __m512i total = _mm512_setzero_si512();
#pragma GCC unroll 4
      for (int b = 0; b < kStepBlocks; ++b) {
        if constexpr (kType == RowType::q8) {
          const __m512i x = _mm512_cvtps_epi32(simd::mul(w[b], inverse));
          put(0, g, b, _mm512_srli_epi32(x, 8));
          put(1, g, b, x);
        } else {
          const __m512 raised = simd::fma(w[b], inverse, simd::load(kDither.slot + b * kBlockRows));
          const __m512i x = _mm512_cvt_roundps_epi32(raised, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
          put(0, g, b, x);
          total = _mm512_add_epi32(total, x);
        }
      }
      sum[g] = kType == RowType::q4 ? _mm512_reduce_add_epi32(total) : 0;
    }
  }
  [[gnu::always_inline]] inline void put(int p, int g, int b, __m512i x) {
    _mm_store_si128(reinterpret_cast<__m128i*>(part[p][g] + b * kBlockRows), _mm512_cvtepi32_epi8(x));
  }
};

// o[g][column ..] = o * correction + weights * values for kVecs * 16 columns.
template <RowType kType, int G, int kVecs>
[[gnu::noinline]] void add_code_columns(const CodeStep& step, size_t v_at, int d, int column,
                                        const CodeWeights<kType, G>& w, const float* correction, float* o) {
  constexpr int kP = kParts<kType>;
  const __m512i levels = _mm512_load_si512(kLevelBytes.biased);
  Sum sum[kP][G][kVecs];
#pragma GCC unroll 2
  for (int p = 0; p < kP; ++p) {
#pragma GCC unroll 8
    for (int g = 0; g < G; ++g) {
#pragma GCC unroll 8
      for (int j = 0; j < kVecs; ++j)
        sum[p][g][j] = set_sum(kType == RowType::q4 ? -kKeyBias * w.sum[g] : 0);
    }
  }
  const int n_blocks = (step.n_rows + kBlockRows - 1) / kBlockRows;
  constexpr int kRows = kType == RowType::q8 ? 4 : 8;  // of one load
  for (int slot = 0; slot < n_blocks * kBlockRows; slot += kRows) {
    const long offset = static_cast<long>(v_at) + (static_cast<long>(slot % kBlockRows / kRows) * d + column) * 4;
    const std::byte* values = step.block[slot / kBlockRows] + offset;
    const std::byte* next = step.next[slot / kBlockRows] + offset;
    __m512i codes[kVecs];
#pragma GCC unroll 8
    for (int j = 0; j < kVecs; ++j) {
      prefetch(next + j * 64);
      codes[j] = _mm512_loadu_si512(values + j * 64);
    }
    if constexpr (kType == RowType::q8) {
#pragma GCC unroll 2
      for (int p = 0; p < kP; ++p) {
#pragma GCC unroll 8
        for (int g = 0; g < G; ++g) {
          const __m512i weight = set_quad(w.part[p][g] + slot);
#pragma GCC unroll 8
          for (int j = 0; j < kVecs; ++j)
            sum[p][g][j] = dot_bytes(sum[p][g][j], weight, codes[j]);
        }
      }
    } else {
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        __m512i looked_up[kVecs];
#pragma GCC unroll 8
        for (int j = 0; j < kVecs; ++j)
          looked_up[j] = _mm512_shuffle_epi8(levels, half == 0 ? low_codes(codes[j]) : high_codes(codes[j]));
#pragma GCC unroll 8
        for (int g = 0; g < G; ++g) {
          const __m512i weight = set_quad(w.part[0][g] + slot + 4 * half);
#pragma GCC unroll 8
          for (int j = 0; j < kVecs; ++j)
            sum[0][g][j] = dot_bytes(sum[0][g][j], looked_up[j], weight);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int g = 0; g < G; ++g) {
#pragma GCC unroll 8
    for (int j = 0; j < kVecs; ++j) {
      Sum dot = sum[0][g][j];
      if constexpr (kP == 2)
        dot = dot * 256 + sum[1][g][j];
      float* out = o + g * d + column + j * 16;
      const __m512 before = simd::mul(simd::load(out), simd::set1(correction[g]));
      simd::store(out, simd::fma(to_floats(dot), simd::set1(w.scale[g]), before));
    }
  }
}

template <RowType kType, int G>
void add_code_values(const CodeStep& step, const BlockLayout& layout, int d, const float* p, const float* correction,
                     float* o) {
  constexpr int kVecs = kCodeVecs<kType, G>;
  CodeWeights<kType, G> w;
  int group = 0;
  for (int begin = 0; begin < d; begin += group_size(d - begin), ++group) {
    w.set(step, layout.v_scales + static_cast<size_t>(group) * kBlockRows * 2, p);
    const int end = begin + group_size(d - begin);
    int column = begin;
    for (; column + kVecs * 16 <= end; column += kVecs * 16)
      add_code_columns<kType, G, kVecs>(step, layout.v, d, column, w, correction, o);
    for (; column < end; column += 16)
      add_code_columns<kType, G, 1>(step, layout.v, d, column, w, correction, o);
  }
}

struct ByteDots {
  template <RowType kType, int G>
  using Queries = CodeQueries<kType, G>;

  // s: f32 [G][64].
  template <RowType kType, int G>
  static void score(const CodeStep& step, const CodeQueries<kType, G>& q, int d, size_t k_scales, float* s) {
    constexpr int kVecs = kCodeVecs<kType, G>;
    for (int vec = 0; vec * kBlockRows < step.n_rows; vec += kVecs)
      score_codes<kType, G, kVecs>(step, vec, q, d, k_scales, s);
  }
  template <RowType kType, int G>
  static void add_values(const CodeStep& step, const BlockLayout& layout, int d, const float* p,
                         const float* correction, float* o) {
    add_code_values<kType, G>(step, layout, d, p, correction, o);
  }
};

}  // namespace
}  // namespace kedge
