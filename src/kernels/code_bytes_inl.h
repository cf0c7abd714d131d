// Decode over q8 and q4 rows by vpdpbusd: four products of an unsigned and a signed byte added to each 32-bit lane.
//
//   keys    u8 (code + 128; q4 looks the level up in a register) times queries i8; 128 times the sum of the queries is
//           taken off, then the row's scale multiplies
//   values  the row's scale goes into its weight first, because rows are what the lanes add over; weights are then
//           rounded to integers, 64 rows at a time, relative to the largest of them
//
// q8 carries queries in 15 bits and weights in 16 (two bytes, two products each): nothing is lost to rounding. q4
// carries both in 8: its own levels are far coarser. Its weights are rounded down or up by a fixed pattern over the
// slots, so that many small ones beside a large one (a sink) keep their sum. Measured: docs/kv-types.md.
#pragma once

#include "kernels/code_step_inl.h"

namespace kedge {
namespace {

template <RowType kType>
constexpr int kParts = kType == RowType::q8 ? 2 : 1;  // bytes that carry a query or a weight

// How many vectors of accumulators fit the registers beside G heads.
template <RowType kType, int G>
constexpr int kCodeVecs = min_int(4, largest_power_of_two(simd::kAccumulators / (G * kParts<kType>)));

// Fractions of the golden ratio: floor(x + dither) has the mean x over any run of slots.
struct Dither {
  alignas(64) float slot[kStepRows]{};
  constexpr Dither() {
    for (int i = 0; i < kStepRows; ++i) {
      const double x = (i + 0.5) * 0.6180339887498949;
      slot[i] = static_cast<float>(x - static_cast<int>(x));
    }
  }
};
constexpr Dither kDither;

// Sums are kept in the type that the instruction adds to: as __m512i (64-bit lanes to the compiler) GCC 12 copies and
// spills every one of them in every turn of the loop.
using Sum = int32_t __attribute__((vector_size(64)));

[[gnu::always_inline]] inline Sum dot_bytes(Sum sum, __m512i unsigned_bytes, __m512i signed_bytes) {
  return (Sum)_mm512_dpbusd_epi32((__m512i)sum, unsigned_bytes, signed_bytes);
}
[[gnu::always_inline]] inline Sum set_sum(int32_t x) { return (Sum)_mm512_set1_epi32(x); }
[[gnu::always_inline]] inline __m512 to_floats(Sum x) { return _mm512_cvtepi32_ps((__m512i)x); }
[[gnu::always_inline]] inline __m512i low_codes(__m512i x) { return _mm512_and_si512(x, _mm512_set1_epi8(15)); }
[[gnu::always_inline]] inline __m512i high_codes(__m512i x) {
  return _mm512_and_si512(_mm512_srli_epi16(x, 4), _mm512_set1_epi8(15));
}
[[gnu::always_inline]] inline __m512i set_quad(const uint8_t* p) {
  return _mm512_set1_epi32(*reinterpret_cast<const int32_t*>(p));
}

}  // namespace
}  // namespace kedge
