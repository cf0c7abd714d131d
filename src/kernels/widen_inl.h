// 64 rows of any type as f32, and the Hadamard turn of quantised rows (quant.h). Over the vectors of simd_*.h.
#pragma once

#include <cmath>

#include "kernels/attention_targets.h"
#include "kernels/quant.h"

namespace kedge {
namespace {

struct Q4Floats {
  alignas(64) float level[16]{};
  constexpr Q4Floats() {
    for (int i = 0; i < 16; ++i)
      level[i] = kQ4Levels[i];
  }
};
constexpr Q4Floats kQ4Floats;

inline void widen_f16_keys(const std::byte* block, int d, float* k) {
  using namespace simd;
  for (int lane = 0; lane < kBlockRows; lane += kLanes) {
    for (int i = 0; i < d; ++i)
      store(k + i * kStepRows + lane, load_f16(block + (i * kBlockRows + lane) * 2));
  }
}
inline void widen_bf16_keys(const std::byte* block, int d, float* k) {
  using namespace simd;
  for (int lane = 0; lane < kBlockRows; lane += kLanes) {
    for (int i = 0; i < d; i += 2) {
      Vec even;
      Vec odd;
      load_bf16_pairs(block + (i / 2 * kBlockRows + lane) * 4, even, odd);
      store(k + i * kStepRows + lane, even);
      store(k + (i + 1) * kStepRows + lane, odd);
    }
  }
}

// Codes of one group, keys [channels/4 or /8][16][4], times the scales of 16 rows.
template <RowType kType>
void widen_key_codes(const std::byte* codes, const std::byte* scales, int d, float* k) {
  using namespace simd;
  const Levels levels = load_levels(kQ4Floats.level);
  for (int lane = 0; lane < kBlockRows; lane += kLanes) {
    int group = 0;
    for (int begin = 0; begin < d; begin += group_size(d - begin), ++group) {
      const Vec scale = load_f16(scales + (group * kBlockRows + lane) * 2);
      const Vec bias = mul(scale, set1(-128.0F));
      const int end = begin + group_size(d - begin);
      if constexpr (kType == RowType::q8) {
        for (int i = begin; i < end; i += 4) {
          const Ints quad = load_ints(codes + (i / 4 * kBlockRows + lane) * 4);
#pragma GCC unroll 4
          for (int e = 0; e < 4; ++e)
            store(k + (i + e) * kStepRows + lane, fma(to_floats(bits_of(quad, 8 * e, 0xFF)), scale, bias));
        }
      } else {
        for (int i = begin; i < end; i += 8) {
          const Ints quads = load_ints(codes + (i / 8 * kBlockRows + lane) * 4);
#pragma GCC unroll 4
          for (int e = 0; e < 4; ++e) {
            store(k + (i + e) * kStepRows + lane, mul(lookup(levels, bits_of(quads, 8 * e, 15)), scale));
            store(k + (i + e + 4) * kStepRows + lane, mul(lookup(levels, bits_of(quads, 8 * e + 4, 15)), scale));
          }
        }
      }
    }
  }
}

// Keys of n_rows rows (at most 64, beginning with a block) of a head without a tail as f32 [head_dim][64], turned if
// they are quantised. Columns beyond n_rows: anything.
inline void widen_keys(const KvHeadView& rows, int row, int n_rows, float* k) {
  const BlockLayout layout = rows.layout();
  const int d = rows.head_dim;
  for (int b = 0; b * kBlockRows < n_rows; ++b) {
    const std::byte* block = rows.blocks + rows.block_ids[row / kBlockRows + b] * layout.bytes;
    float* out = k + b * kBlockRows;
    switch (rows.type.k) {
      case RowType::f16:
        widen_f16_keys(block, d, out);
        break;
      case RowType::bf16:
        widen_bf16_keys(block, d, out);
        break;
      case RowType::q8:
        widen_key_codes<RowType::q8>(block, block + layout.k_scales, d, out);
        break;
      case RowType::q4:
        widen_key_codes<RowType::q4>(block, block + layout.k_scales, d, out);
        break;
    }
  }
}

inline void widen_f16_values(const std::byte* values, int d, float* v) {
  for (int i = 0; i < kBlockRows * d; i += simd::kLanes)
    simd::store(v + i, simd::load_f16(values + i * 2));
}
inline void widen_bf16_values(const std::byte* values, int d, float* v) {
  using namespace simd;
  for (int pair = 0; pair < kBlockRows / 2; ++pair) {
    for (int i = 0; i < d; i += kLanes) {
      Vec even;
      Vec odd;
      load_bf16_pairs(values + (pair * d + i) * 4, even, odd);
      store(v + 2 * pair * d + i, even);
      store(v + (2 * pair + 1) * d + i, odd);
    }
  }
}

// Codes of 16 rows, [4 or 2][d][4], times each row's scale.
template <RowType kType>
void widen_value_codes(const std::byte* codes, const std::byte* scales, int d, float* v) {
  using namespace simd;
  const Levels levels = load_levels(kQ4Floats.level);
  constexpr int kRows = kType == RowType::q8 ? 4 : 8;  // of one load
  alignas(64) float scale[kBlockRows];
  int group = 0;
  for (int begin = 0; begin < d; begin += group_size(d - begin), ++group) {
    for (int lane = 0; lane < kBlockRows; lane += kLanes)
      store(scale + lane, load_f16(scales + (group * kBlockRows + lane) * 2));
    const int end = begin + group_size(d - begin);
    for (int slot = 0; slot < kBlockRows; slot += kRows) {
      for (int i = begin; i < end; i += kLanes) {
        const Ints quads = load_ints(codes + (slot / kRows * d + i) * 4);
#pragma GCC unroll 4
        for (int r = 0; r < 4; ++r) {
          float* out = v + (slot + r) * d + i;
          if constexpr (kType == RowType::q8) {
            store(out, mul(to_floats(signed_byte(quads, r)), set1(scale[slot + r])));
          } else {
            store(out, mul(lookup(levels, bits_of(quads, 8 * r, 15)), set1(scale[slot + r])));
            store(out + 4 * d, mul(lookup(levels, bits_of(quads, 8 * r + 4, 15)), set1(scale[slot + r + 4])));
          }
        }
      }
    }
  }
}

// Values of n_rows rows, likewise, as f32 [64][head_dim]. Whole blocks: rows beyond n_rows hold what the slots hold.
inline void widen_values(const KvHeadView& rows, int row, int n_rows, float* v) {
  const BlockLayout layout = rows.layout();
  const int d = rows.head_dim;
  for (int b = 0; b * kBlockRows < n_rows; ++b) {
    const std::byte* block = rows.blocks + rows.block_ids[row / kBlockRows + b] * layout.bytes;
    float* out = v + b * kBlockRows * d;
    switch (rows.type.v) {
      case RowType::f16:
        widen_f16_values(block + layout.v, d, out);
        break;
      case RowType::bf16:
        widen_bf16_values(block + layout.v, d, out);
        break;
      case RowType::q8:
        widen_value_codes<RowType::q8>(block + layout.v, block + layout.v_scales, d, out);
        break;
      case RowType::q4:
        widen_value_codes<RowType::q4>(block + layout.v, block + layout.v_scales, d, out);
        break;
    }
  }
}

template <int N>
void turn_group(float* x) {
  using namespace simd;
  constexpr int kVecs = N / kLanes;
  Vec v[kVecs];
#pragma GCC unroll 8
  for (int j = 0; j < kVecs; ++j) {
    v[j] = butterfly<2>(butterfly<1>(load(x + j * kLanes)));
    v[j] = butterfly<4>(v[j]);
    if constexpr (kLanes > 8)
      v[j] = butterfly<8>(v[j]);
  }
#pragma GCC unroll 4
  for (int half = 1; half < kVecs; half *= 2) {
#pragma GCC unroll 8
    for (int j = 0; j < kVecs; ++j) {
      if ((j & half) != 0)
        continue;
      const Vec a = v[j];
      const Vec b = v[j + half];
      v[j] = add(a, b);
      v[j + half] = sub(a, b);
    }
  }
  const Vec norm = set1(1 / std::sqrt(static_cast<float>(N)));
#pragma GCC unroll 8
  for (int j = 0; j < kVecs; ++j)
    store(x + j * kLanes, mul(v[j], norm));
}

// x f32 [d], in place: every group by its Hadamard matrix.
inline void turn(float* x, int d) {
  for (int begin = 0; begin < d; begin += group_size(d - begin)) {
    switch (group_size(d - begin)) {
      case 64:
        turn_group<64>(x + begin);
        break;
      case 32:
        turn_group<32>(x + begin);
        break;
      default:
        turn_group<16>(x + begin);
        break;
    }
  }
}
inline void turn_rows(float* x, long n, int d) {
  for (long i = 0; i < n; ++i)
    turn(x + i * d, d);
}

}  // namespace
}  // namespace kedge
