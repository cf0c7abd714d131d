// Quantised rows: what a group of channels of one row becomes. Internal to src/kernels.
//
// A group (64 channels; what is left of head_dim takes one of 32 and one of 16) is multiplied by the orthonormal
// Hadamard matrix of its size, H = H^T = H^-1, which spreads outlying channels over all of the group and leaves nearly
// normal numbers, then coded with one f16 scale:
//   q8   value = scale * code, code -127..127
//   q4   value = scale * level[code], 16 uneven levels; the scale may be negative, because the levels reach further
//        down than up
// Scalar products survive: q.k = (Hq).(Hk), and sum w v = H sum w (Hv), so kernels turn queries and outputs, never
// rows.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/kv_view.h"

namespace kedge {

// Fitted (k-means over groups of 64 normal numbers, scale and sign chosen as encode_q4 does) and rounded: mean squared
// error 0.0068 of the variance, against 0.0091 for 16 even levels up to the largest of 64 channels.
inline constexpr int8_t kQ4Levels[16] = {-127, -98, -77, -60, -46, -34, -22, -11, 0, 11, 22, 34, 47, 62, 80, 105};

// x f32 [d]: every group by its Hadamard matrix, in place. Its own inverse.
void rotate_groups(float* x, int d);

// One rotated group x f32 [n] to codes and the f16 scale. A NaN makes the scale NaN.
void encode_q8(std::span<const float> x, int8_t* codes, uint16_t* scale);
void encode_q4(std::span<const float> x, uint8_t* codes, uint16_t* scale);

// Bytes of a block: where the code of dimension d of row `slot` lies. q4: half 0 is the low one.
struct CodeAt {
  int byte;
  int half;
};
inline CodeAt k_code_at(int slot, int d, RowType type) {
  if (type == RowType::q8)
    return {.byte = (d / 4 * kBlockRows + slot) * 4 + d % 4, .half = 0};
  return {.byte = (d / 8 * kBlockRows + slot) * 4 + d % 4, .half = d / 4 % 2};
}
inline CodeAt v_code_at(int slot, int d, int head_dim, RowType type) {
  if (type == RowType::q8)
    return {.byte = (slot / 4 * head_dim + d) * 4 + slot % 4, .half = 0};
  return {.byte = (slot / 8 * head_dim + d) * 4 + slot % 4, .half = slot / 4 % 2};
}

// K (or V) of one row of a quantised type: x f32 [head_dim] into the block, out of it, and from block to block.
void write_k_codes(std::byte* block, int slot, int head_dim, RowTypes type, const float* x);
void write_v_codes(std::byte* block, int slot, int head_dim, RowTypes type, const float* x);
void read_k_codes(const std::byte* block, int slot, int head_dim, RowTypes type, float* x);
void read_v_codes(const std::byte* block, int slot, int head_dim, RowTypes type, float* x);
void copy_k_codes(std::byte* dst, int dst_slot, const std::byte* src, int src_slot, int head_dim, RowTypes type);
void copy_v_codes(std::byte* dst, int dst_slot, const std::byte* src, int src_slot, int head_dim, RowTypes type);

}  // namespace kedge
