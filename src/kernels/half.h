// Scalar conversions between f32 and the two row types. The vector paths must agree with these bit for bit.
//
// Storing saturates: a finite or infinite value beyond the type's range becomes its largest finite value (65504 for
// f16), because one infinite key would turn a whole head's softmax into NaN. NaN stays NaN (quiet).
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/kv_view.h"

namespace kedge {

inline constexpr float kF16Max = 65504.0F;

inline float f16_to_f32(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000U) << 16;
  const uint32_t exponent = (h >> 10) & 0x1FU;
  const uint32_t mantissa = h & 0x3FFU;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24, exact in f32
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  if (exponent == 31) {
    const uint32_t quiet = mantissa != 0 ? 0x400000U : 0U;
    return std::bit_cast<float>(sign | 0x7F800000U | quiet | (mantissa << 13));
  }
  return std::bit_cast<float>(sign | ((exponent + 112U) << 23) | (mantissa << 13));
}

// Rounds to nearest even.
inline uint16_t f32_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000U;
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U)
    return static_cast<uint16_t>(sign | 0x7E00U | ((magnitude >> 13) & 0x3FFU));
  if (magnitude >= 0x477FE000U)
    return static_cast<uint16_t>(sign | 0x7BFFU);  // |value| >= 65504
  if (magnitude < 0x38800000U) {
    // Below 2^-14 the result is subnormal: adding 0.5 puts the unit of 2^-24 at the last mantissa bit, so the
    // hardware's own rounding does the work.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000U));
  }
  const uint32_t odd = (magnitude >> 13) & 1U;
  const uint32_t rounded = magnitude + 0xFFFU + odd - (112U << 23);
  return static_cast<uint16_t>(sign | (rounded >> 13));
}

inline float bf16_to_f32(uint16_t h) { return std::bit_cast<float>(static_cast<uint32_t>(h) << 16); }

// Rounds to nearest even.
inline uint16_t f32_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U)
    return static_cast<uint16_t>((bits >> 16) | 0x40U);
  if (magnitude >= 0x7F7F0000U)
    return static_cast<uint16_t>(((bits >> 16) & 0x8000U) | 0x7F7FU);
  return static_cast<uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

inline float to_f32(uint16_t h, RowType type) { return type == RowType::f16 ? f16_to_f32(h) : bf16_to_f32(h); }
inline uint16_t from_f32(float value, RowType type) {
  return type == RowType::f16 ? f32_to_f16(value) : f32_to_bf16(value);
}

// Index (in 16-bit elements) of dimension d of row `slot` inside the K or the V half of a block (kv_view.h).
inline int k_index(int slot, int d, RowType type) {
  return type == RowType::f16 ? d * kBlockRows + slot : (d / 2) * 2 * kBlockRows + slot * 2 + d % 2;
}
inline int v_index(int slot, int d, int head_dim, RowType type) {
  return type == RowType::f16 ? slot * head_dim + d : (slot / 2) * 2 * head_dim + d * 2 + slot % 2;
}

}  // namespace kedge
