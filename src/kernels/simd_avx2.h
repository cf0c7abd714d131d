// Eight f32 lanes (AVX2, FMA, F16C). Same names and rules as simd_avx512.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace kedge {
namespace {
namespace simd {

using Vec = __m256;
constexpr int kLanes = 8;
constexpr int kAccumulators = 12;  // of 16 registers
constexpr int kGemmVecs = 2;       // 6 x 2 sums

[[gnu::always_inline]] inline Vec zero() { return _mm256_setzero_ps(); }
[[gnu::always_inline]] inline Vec set1(float x) { return _mm256_set1_ps(x); }
[[gnu::always_inline]] inline Vec load(const float* p) { return _mm256_loadu_ps(p); }
[[gnu::always_inline]] inline void store(float* p, Vec x) { _mm256_storeu_ps(p, x); }
[[gnu::always_inline]] inline Vec add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
[[gnu::always_inline]] inline Vec sub(Vec a, Vec b) { return _mm256_sub_ps(a, b); }
[[gnu::always_inline]] inline Vec mul(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
[[gnu::always_inline]] inline Vec max(Vec a, Vec b) { return _mm256_max_ps(a, b); }
[[gnu::always_inline]] inline Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }

[[gnu::always_inline]] inline float reduce_add(Vec x) {
  __m128 half = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  half = _mm_add_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}
[[gnu::always_inline]] inline float reduce_max(Vec x) {
  __m128 half = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  half = _mm_max_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
}

[[gnu::always_inline]] inline __m256i first_lanes(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
[[gnu::always_inline]] inline Vec first_or(Vec x, int n, Vec fill) {
  return _mm256_blendv_ps(fill, x, _mm256_castsi256_ps(first_lanes(n)));
}
[[gnu::always_inline]] inline void store_first(float* p, Vec x, int n) { _mm256_maskstore_ps(p, first_lanes(n), x); }
[[gnu::always_inline]] inline Vec load_first(const float* p, int n) { return _mm256_maskload_ps(p, first_lanes(n)); }

[[gnu::always_inline]] inline Vec load_f16(const std::byte* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
[[gnu::always_inline]] inline void load_bf16_pairs(const std::byte* p, Vec& even, Vec& odd) {
  const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  even = _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
  odd = _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xFFFF0000U))));
}

using Ints = __m256i;  // i32 [kLanes]
[[gnu::always_inline]] inline Ints load_ints(const std::byte* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
[[gnu::always_inline]] inline Ints bits_of(Ints x, int shift, int mask) {
  return _mm256_and_si256(_mm256_srli_epi32(x, shift), _mm256_set1_epi32(mask));
}
[[gnu::always_inline]] inline Ints signed_byte(Ints x, int i) {
  return _mm256_srai_epi32(_mm256_slli_epi32(x, 24 - 8 * i), 24);
}
[[gnu::always_inline]] inline Vec to_floats(Ints x) { return _mm256_cvtepi32_ps(x); }

// For products of 16-bit integers (code_words_inl.h).
[[gnu::always_inline]] inline Ints set_ints(int32_t x) { return _mm256_set1_epi32(x); }
[[gnu::always_inline]] inline void store_ints(int32_t* p, Ints x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x);
}
[[gnu::always_inline]] inline Ints and_ints(Ints a, Ints b) { return _mm256_and_si256(a, b); }
[[gnu::always_inline]] inline Ints or_ints(Ints a, Ints b) { return _mm256_or_si256(a, b); }
[[gnu::always_inline]] inline Ints xor_ints(Ints a, Ints b) { return _mm256_xor_si256(a, b); }
[[gnu::always_inline]] inline Ints shift_left(Ints x, int n) { return _mm256_slli_epi32(x, static_cast<int>(n)); }
[[gnu::always_inline]] inline Ints swap_pairs(Ints x) { return _mm256_shuffle_epi32(x, 0x4E); }  // lanes 2 3 0 1
[[gnu::always_inline]] inline Ints to_ints(Vec x) { return _mm256_cvtps_epi32(x); }
[[gnu::always_inline]] inline int32_t add_lanes(Ints x) {
  __m128i half = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4E));
  return _mm_cvtsi128_si32(_mm_add_epi32(half, _mm_shuffle_epi32(half, 0xB1)));
}
[[gnu::always_inline]] inline Ints high_bytes(Ints x) { return _mm256_srli_epi16(x, 8); }  // of 16-bit lanes
[[gnu::always_inline]] inline Ints multiply_words(Ints a, Ints b) { return _mm256_madd_epi16(a, b); }
[[gnu::always_inline]] inline Ints half_bytes(Ints x, int half) {
  return and_ints(half == 0 ? x : _mm256_srli_epi16(x, 4), _mm256_set1_epi8(15));
}
[[gnu::always_inline]] inline Ints lookup_bytes(Ints levels, Ints index) { return _mm256_shuffle_epi8(levels, index); }

struct Levels {
  Vec low, high;
};
[[gnu::always_inline]] inline Levels load_levels(const float* p) { return {load(p), load(p + 8)}; }
[[gnu::always_inline]] inline Vec lookup(const Levels& levels, Ints index) {
  const Vec low = _mm256_permutevar8x32_ps(levels.low, index);
  const Vec high = _mm256_permutevar8x32_ps(levels.high, index);
  return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(index, 28)));
}

// Lanes i and i ^ kHalf become their sum (in the lower one) and their difference.
template <int kHalf>
[[gnu::always_inline]] inline Vec butterfly(Vec x) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const Vec other = _mm256_permutevar8x32_ps(x, _mm256_xor_si256(lane, _mm256_set1_epi32(kHalf)));
  const __m256i upper = _mm256_cmpeq_epi32(_mm256_and_si256(lane, _mm256_set1_epi32(kHalf)), _mm256_set1_epi32(kHalf));
  const __m256i sign = _mm256_and_si256(upper, _mm256_set1_epi32(INT32_MIN));
  return add(other, _mm256_xor_ps(x, _mm256_castsi256_ps(sign)));
}

[[gnu::always_inline]] inline Vec exp2(Vec x) {
  const Vec lowest = set1(-126.0F);
  const Vec normal = _mm256_cmp_ps(x, lowest, _CMP_GE_OQ);
  const Vec clamped = max(x, lowest);
  const Vec n = _mm256_round_ps(clamped, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const Vec r = sub(clamped, n);
  Vec y = set1(1.546147951951537e-4F);
  y = fma(y, r, set1(1.3400468389577265e-3F));
  y = fma(y, r, set1(9.61805659144437e-3F));
  y = fma(y, r, set1(5.550327126120693e-2F));
  y = fma(y, r, set1(2.4022650922697145e-1F));
  y = fma(y, r, set1(6.931472067499711e-1F));
  y = fma(y, r, set1(1.0F));
  // Adding n to the exponent field; y is in [0.7, 1.42], so the sum stays normal.
  const __m256i power = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
  const Vec scaled = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(y), power));
  return _mm256_and_ps(normal, scaled);
}

}  // namespace simd
}  // namespace
}  // namespace kedge
