// Sixteen f32 lanes. Included once by a kernel file, after the pragma that switches the instruction set on and after
// every standard header, so that no inline function of theirs is compiled with it. Everything has internal linkage.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace kedge {
namespace {
namespace simd {

using Vec = __m512;
constexpr int kLanes = 16;
constexpr int kAccumulators = 24;  // registers that a kernel may hold sums in: the other 8 carry operands
constexpr int kGemmVecs = 4;       // 6 x 4 sums

[[gnu::always_inline]] inline Vec zero() { return _mm512_setzero_ps(); }
[[gnu::always_inline]] inline Vec set1(float x) { return _mm512_set1_ps(x); }
[[gnu::always_inline]] inline Vec load(const float* p) { return _mm512_loadu_ps(p); }
[[gnu::always_inline]] inline void store(float* p, Vec x) { _mm512_storeu_ps(p, x); }
[[gnu::always_inline]] inline Vec add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
[[gnu::always_inline]] inline Vec sub(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
[[gnu::always_inline]] inline Vec mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
[[gnu::always_inline]] inline Vec max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
[[gnu::always_inline]] inline Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
[[gnu::always_inline]] inline float reduce_add(Vec x) { return _mm512_reduce_add_ps(x); }
[[gnu::always_inline]] inline float reduce_max(Vec x) { return _mm512_reduce_max_ps(x); }

[[gnu::always_inline]] inline __mmask16 first_lanes(int n) {
  if (n >= kLanes)
    return 0xFFFF;
  return n <= 0 ? static_cast<__mmask16>(0) : static_cast<__mmask16>((1U << n) - 1U);
}

// The first n lanes of x, `fill` in the rest.
[[gnu::always_inline]] inline Vec first_or(Vec x, int n, Vec fill) {
  return _mm512_mask_blend_ps(first_lanes(n), fill, x);
}
[[gnu::always_inline]] inline void store_first(float* p, Vec x, int n) { _mm512_mask_storeu_ps(p, first_lanes(n), x); }
[[gnu::always_inline]] inline Vec load_first(const float* p, int n) { return _mm512_maskz_loadu_ps(first_lanes(n), p); }

[[gnu::always_inline]] inline Vec load_f16(const std::byte* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

// 16 pairs of bf16: the first of each pair into `even`, the second into `odd`.
[[gnu::always_inline]] inline void load_bf16_pairs(const std::byte* p, Vec& even, Vec& odd) {
  const __m512i pairs = _mm512_loadu_si512(p);
  even = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
  odd = _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xFFFF0000U))));
}

using Ints = __m512i;  // i32 [kLanes]
[[gnu::always_inline]] inline Ints load_ints(const std::byte* p) { return _mm512_loadu_si512(p); }
[[gnu::always_inline]] inline Ints bits_of(Ints x, int shift, int mask) {
  return _mm512_and_si512(_mm512_srli_epi32(x, static_cast<unsigned>(shift)), _mm512_set1_epi32(mask));
}
[[gnu::always_inline]] inline Ints signed_byte(Ints x, int i) {
  return _mm512_srai_epi32(_mm512_slli_epi32(x, static_cast<unsigned>(24 - 8 * i)), 24);
}
[[gnu::always_inline]] inline Vec to_floats(Ints x) { return _mm512_cvtepi32_ps(x); }

// For products of 16-bit integers (code_words_inl.h).
[[gnu::always_inline]] inline Ints set_ints(int32_t x) { return _mm512_set1_epi32(x); }
[[gnu::always_inline]] inline void store_ints(int32_t* p, Ints x) { _mm512_storeu_si512(p, x); }
[[gnu::always_inline]] inline Ints and_ints(Ints a, Ints b) { return _mm512_and_si512(a, b); }
[[gnu::always_inline]] inline Ints or_ints(Ints a, Ints b) { return _mm512_or_si512(a, b); }
[[gnu::always_inline]] inline Ints xor_ints(Ints a, Ints b) { return _mm512_xor_si512(a, b); }
[[gnu::always_inline]] inline Ints shift_left(Ints x, int n) { return _mm512_slli_epi32(x, static_cast<unsigned>(n)); }
[[gnu::always_inline]] inline Ints swap_pairs(Ints x) {
  return _mm512_shuffle_epi32(x, _MM_PERM_BADC);
}  // lanes 2 3 0 1
[[gnu::always_inline]] inline Ints to_ints(Vec x) { return _mm512_cvtps_epi32(x); }
[[gnu::always_inline]] inline int32_t add_lanes(Ints x) { return _mm512_reduce_add_epi32(x); }
[[gnu::always_inline]] inline Ints high_bytes(Ints x) { return _mm512_srli_epi16(x, 8); }  // of 16-bit lanes
[[gnu::always_inline]] inline Ints multiply_words(Ints a, Ints b) { return _mm512_madd_epi16(a, b); }
[[gnu::always_inline]] inline Ints half_bytes(Ints x, int half) {
  return and_ints(half == 0 ? x : _mm512_srli_epi16(x, 4), _mm512_set1_epi8(15));
}
[[gnu::always_inline]] inline Ints lookup_bytes(Ints levels, Ints index) { return _mm512_shuffle_epi8(levels, index); }

struct Levels {
  Vec all;
};
[[gnu::always_inline]] inline Levels load_levels(const float* p) { return {load(p)}; }
[[gnu::always_inline]] inline Vec lookup(const Levels& levels, Ints index) {
  return _mm512_permutexvar_ps(index, levels.all);
}

// Lanes i and i ^ kHalf become their sum (in the lower one) and their difference.
template <int kHalf>
[[gnu::always_inline]] inline Vec butterfly(Vec x) {
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const Vec other = _mm512_permutexvar_ps(_mm512_xor_si512(lane, _mm512_set1_epi32(kHalf)), x);
  const __mmask16 upper = _mm512_test_epi32_mask(lane, _mm512_set1_epi32(kHalf));
  return _mm512_mask_sub_ps(add(other, x), upper, other, x);
}

// 2^x for x < 128: a power of two times a polynomial of degree 6 in the remainder, whose own error is a third of
// an ulp. Below -126, and at -inf, exactly 0: no subnormals.
[[gnu::always_inline]] inline Vec exp2(Vec x) {
  const __mmask16 normal = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-126.0F), _CMP_GE_OQ);
  const Vec n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const Vec r = sub(x, n);
  Vec y = set1(1.546147951951537e-4F);
  y = fma(y, r, set1(1.3400468389577265e-3F));
  y = fma(y, r, set1(9.61805659144437e-3F));
  y = fma(y, r, set1(5.550327126120693e-2F));
  y = fma(y, r, set1(2.4022650922697145e-1F));
  y = fma(y, r, set1(6.931472067499711e-1F));
  y = fma(y, r, set1(1.0F));
  return _mm512_maskz_scalef_ps(normal, y, n);
}

}  // namespace simd
}  // namespace
}  // namespace kedge
