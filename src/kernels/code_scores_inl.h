// Queries against the keys of quantised rows, in bytes (code_bytes_inl.h).
#pragma once

#include "kernels/code_bytes_inl.h"

namespace kedge {
namespace {

template <RowType kType, int G>
struct CodeQueries {
  static constexpr int kMostGroups = kMaxHeadDim / 16;
  alignas(64) uint8_t part[kParts<kType>][kMaxHeadDim * G];  // i8 [head_dim / 4][G][4]: the low bits last
  int32_t minus_bias[kParts<kType>][kMostGroups][G];         // -128 * sum of the group's queries
  float scale[G];

  // q: of one group of heads, turned here.
  void set(const DecodeQuery& query, int d) {
    alignas(64) float q[kMaxHeadDim];
    for (int g = 0; g < G; ++g) {
      for (int i = 0; i < d; ++i)
        q[i] = query.q[g * d + i] * (query.scale * kLog2e);
      turn(q, d);
      set_head(q, g, d);
    }
  }

  void set_head(const float* q, int g, int d) {
    constexpr float kReach = kParts<kType> == 2 ? 127 * 128 : 127;
    __m512 largest = simd::zero();
    for (int i = 0; i < d; i += 16)
      largest = simd::max(largest, _mm512_abs_ps(simd::load(q + i)));
    const float most = simd::reduce_max(largest);
    scale[g] = most / kReach;
    const __m512 inverse = simd::set1(most > 0 ? kReach / most : 0.0F);
    int group = 0;
    for (int begin = 0; begin < d; begin += group_size(d - begin), ++group) {
      Sum sum[2] = {set_sum(0), set_sum(0)};
      for (int i = begin; i < begin + group_size(d - begin); i += 16) {
        const Sum x = (Sum)_mm512_cvtps_epi32(simd::mul(simd::load(q + i), inverse));
        const Sum high = kParts<kType> == 2 ? (x + 64) >> 7 : x;
        const Sum values[2] = {high, x - high * 128};
#pragma GCC unroll 2
        for (int p = 0; p < kParts<kType>; ++p) {
          alignas(16) uint8_t bytes[16];
          _mm_store_si128(reinterpret_cast<__m128i*>(bytes), _mm512_cvtepi32_epi8((__m512i)values[p]));
          for (int quad = 0; quad < 4; ++quad)
            __builtin_memcpy(part[p] + ((i / 4 + quad) * G + g) * 4, bytes + quad * 4, 4);
          sum[p] += values[p];
        }
      }
      for (int p = 0; p < kParts<kType>; ++p)
        minus_bias[p][group][g] = -kKeyBias * _mm512_reduce_add_epi32((__m512i)sum[p]);
    }
  }
};

// sum[parts][G][kVecs] += four dimensions of the keys of kVecs blocks times those of the queries.
template <int kP, int G, int kVecs, RowType kType>
[[gnu::always_inline]] inline void add_quad(Sum (&sum)[kP][G][kVecs], const __m512i (&keys)[kVecs],
                                            const CodeQueries<kType, G>& q, int quad) {
#pragma GCC unroll 2
  for (int p = 0; p < kP; ++p) {
#pragma GCC unroll 8
    for (int g = 0; g < G; ++g) {
      const __m512i query = set_quad(q.part[p] + (quad * G + g) * 4);
#pragma GCC unroll 8
      for (int j = 0; j < kVecs; ++j)
        sum[p][g][j] = dot_bytes(sum[p][g][j], keys[j], query);
    }
  }
}

// Scores of kVecs blocks from `vec` on: s f32 [G][64].
template <RowType kType, int G, int kVecs>
[[gnu::noinline]] void score_codes(const CodeStep& step, int vec, const CodeQueries<kType, G>& q, int d,
                                   size_t k_scales, float* s) {
  constexpr int kP = kParts<kType>;
  const __m512i levels = _mm512_load_si512(kLevelBytes.biased);
  __m512 total[G][kVecs];
#pragma GCC unroll 8
  for (int g = 0; g < G; ++g) {
#pragma GCC unroll 8
    for (int j = 0; j < kVecs; ++j)
      total[g][j] = simd::zero();
  }
  int group = 0;
  for (int begin = 0; begin < d; begin += group_size(d - begin), ++group) {
    Sum sum[kP][G][kVecs];
#pragma GCC unroll 2
    for (int p = 0; p < kP; ++p) {
#pragma GCC unroll 8
      for (int g = 0; g < G; ++g) {
#pragma GCC unroll 8
        for (int j = 0; j < kVecs; ++j)
          sum[p][g][j] = set_sum(q.minus_bias[p][group][g]);
      }
    }
    const int end = begin + group_size(d - begin);
    for (int i = begin; i < end; i += kType == RowType::q8 ? 4 : 8) {
      const long offset = static_cast<long>(i) / (kType == RowType::q8 ? 4 : 8) * 64;
      __m512i keys[kVecs];
#pragma GCC unroll 8
      for (int j = 0; j < kVecs; ++j) {
        prefetch(step.next[vec + j] + offset);
        keys[j] = _mm512_loadu_si512(step.block[vec + j] + offset);
      }
      if constexpr (kType == RowType::q8) {
        add_quad<kP, G, kVecs>(sum, keys, q, i / 4);
      } else {
        __m512i looked_up[kVecs];
#pragma GCC unroll 8
        for (int j = 0; j < kVecs; ++j)
          looked_up[j] = _mm512_shuffle_epi8(levels, low_codes(keys[j]));
        add_quad<kP, G, kVecs>(sum, looked_up, q, i / 4);
#pragma GCC unroll 8
        for (int j = 0; j < kVecs; ++j)
          looked_up[j] = _mm512_shuffle_epi8(levels, high_codes(keys[j]));
        add_quad<kP, G, kVecs>(sum, looked_up, q, i / 4 + 1);
      }
    }
#pragma GCC unroll 8
    for (int j = 0; j < kVecs; ++j) {
      const __m512 scale = simd::load_f16(step.block[vec + j] + k_scales + static_cast<long>(group) * kBlockRows * 2);
#pragma GCC unroll 8
      for (int g = 0; g < G; ++g) {
        Sum dot = sum[0][g][j];
        if constexpr (kP == 2)
          dot = dot * 128 + sum[1][g][j];
        total[g][j] = simd::fma(to_floats(dot), scale, total[g][j]);
      }
    }
  }
#pragma GCC unroll 8
  for (int g = 0; g < G; ++g) {
#pragma GCC unroll 8
    for (int j = 0; j < kVecs; ++j)
      simd::store(s + g * kStepRows + (vec + j) * kBlockRows, simd::mul(total[g][j], simd::set1(q.scale[g])));
  }
}

}  // namespace
}  // namespace kedge
