#include "kernels/quant.h"

#include <emmintrin.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "kernels/attention_targets.h"
#include "kernels/half.h"

namespace kedge {
namespace {

// The level nearest to x, for x in -128..127 (rounded to integers: a 256th of the range decides next to nothing).
struct NearestLevel {
  std::array<uint8_t, 256> code{};
  std::array<float, 256> level{};
  constexpr NearestLevel() {
    for (int x = -128; x < 128; ++x) {
      int best = 0;
      for (int c = 1; c < 16; ++c) {
        const int distance = x - kQ4Levels[c] < 0 ? kQ4Levels[c] - x : x - kQ4Levels[c];
        const int shortest = x - kQ4Levels[best] < 0 ? kQ4Levels[best] - x : x - kQ4Levels[best];
        if (distance < shortest)
          best = c;
      }
      code[static_cast<size_t>(x + 128)] = static_cast<uint8_t>(best);
      level[static_cast<size_t>(x + 128)] = kQ4Levels[best];
    }
  }
};
constexpr NearestLevel kNearest;

// What the largest channel is scaled to. Values beyond the outermost level are cut to it.
constexpr float kQ4Reach[] = {112, 127, 142};

// Four channels times `inverse`, cut to [low, high] and rounded: SSE2, which every x86-64 has. (std::lrint is a call.)
__m128i round_four(const float* x, __m128 inverse, float low, float high) {
  const __m128 scaled = _mm_mul_ps(_mm_loadu_ps(x), inverse);
  return _mm_cvtps_epi32(_mm_min_ps(_mm_max_ps(scaled, _mm_set1_ps(low)), _mm_set1_ps(high)));
}

// Indices into kNearest of four channels.
struct FourIndices {
  alignas(16) int32_t at[4];
  FourIndices(const float* x, __m128 inverse) {
    const __m128i rounded = round_four(x, inverse, -128, 127);
    _mm_store_si128(reinterpret_cast<__m128i*>(at), _mm_add_epi32(rounded, _mm_set1_epi32(128)));
  }
};

float add_four(__m128 x) {
  alignas(16) float lane[4];
  _mm_store_ps(lane, x);
  return (lane[0] + lane[1]) + (lane[2] + lane[3]);
}

// How well the levels nearest to x * inverse fit x.
struct Fit {
  float xy = 0;  // sum of x times its level
  float yy = 0;  // sum of squared levels
};
Fit fit_levels(std::span<const float> x, float inverse) {
  __m128 xy = _mm_setzero_ps();
  __m128 yy = _mm_setzero_ps();
  const __m128 factor = _mm_set1_ps(inverse);
  for (size_t i = 0; i < x.size(); i += 4) {
    const FourIndices index(&x[i], factor);
    const __m128 y =
        _mm_setr_ps(kNearest.level[static_cast<size_t>(index.at[0])], kNearest.level[static_cast<size_t>(index.at[1])],
                    kNearest.level[static_cast<size_t>(index.at[2])], kNearest.level[static_cast<size_t>(index.at[3])]);
    xy = _mm_add_ps(xy, _mm_mul_ps(_mm_loadu_ps(&x[i]), y));
    yy = _mm_add_ps(yy, _mm_mul_ps(y, y));
  }
  return {.xy = add_four(xy), .yy = add_four(yy)};
}

float largest_of(std::span<const float> x) {
  float largest = 0;
  for (const float value : x) {
    if (std::isnan(value))
      return value;
    largest = std::max(largest, std::fabs(value));
  }
  return largest;
}

void rotate_group(float* x, int n) {
  for (int half = 1; half < n; half *= 2) {
    for (int begin = 0; begin < n; begin += 2 * half) {
      for (int i = begin; i < begin + half; ++i) {
        const float a = x[i];
        const float b = x[i + half];
        x[i] = a + b;
        x[i + half] = a - b;
      }
    }
  }
  const float norm = 1 / std::sqrt(static_cast<float>(n));
  for (int i = 0; i < n; ++i)
    x[i] *= norm;
}

uint16_t* halves(std::byte* p) { return reinterpret_cast<uint16_t*>(p); }
const uint16_t* halves(const std::byte* p) { return reinterpret_cast<const uint16_t*>(p); }

void put_code(std::byte* codes, CodeAt at, RowType type, uint8_t code) {
  auto* byte = reinterpret_cast<uint8_t*>(codes) + at.byte;
  if (type == RowType::q8) {
    *byte = code;
  } else {
    *byte = at.half == 0 ? static_cast<uint8_t>((*byte & 0xF0U) | code)
                         : static_cast<uint8_t>((*byte & 0x0FU) | static_cast<unsigned>(code << 4U));
  }
}

uint8_t get_code(const std::byte* codes, CodeAt at, RowType type) {
  const uint8_t byte = reinterpret_cast<const uint8_t*>(codes)[at.byte];
  if (type == RowType::q8)
    return byte;
  return at.half == 0 ? byte & 0x0FU : static_cast<uint8_t>(byte >> 4U);
}

constexpr uint8_t kKeyBias = 128;  // q8 keys are stored as code + 128

// Codes of one row in order of dimension, as bytes the block stores, and the scales of its groups.
struct RowCodes {
  uint8_t code[kMaxHeadDim];
  uint16_t scale[kMaxHeadDim / 16];
};

void encode(const float* x, int d, RowType type, uint8_t bias, RowCodes& out) {
  alignas(16) float turned[kMaxHeadDim];
  std::copy_n(x, d, turned);
  rotate_groups(turned, d);
  int group = 0;
  for (int begin = 0; begin < d; begin += group_size(d - begin), ++group) {
    const std::span<const float> part(turned + begin, static_cast<size_t>(group_size(d - begin)));
    if (type == RowType::q4) {
      encode_q4(part, out.code + begin, &out.scale[group]);
      continue;
    }
    int8_t codes[kGroupChannels];
    encode_q8(part, codes, &out.scale[group]);
    for (size_t i = 0; i < part.size(); ++i)
      out.code[static_cast<size_t>(begin) + i] = static_cast<uint8_t>(codes[i] + bias);
  }
}

void decode(const RowCodes& in, int d, RowType type, uint8_t bias, float* x) {
  int group = 0;
  for (int begin = 0; begin < d; begin += group_size(d - begin), ++group) {
    const float scale = f16_to_f32(in.scale[group]);
    for (int i = begin; i < begin + group_size(d - begin); ++i) {
      const int value =
          type == RowType::q4 ? kQ4Levels[in.code[i]] : static_cast<int8_t>(static_cast<uint8_t>(in.code[i] - bias));
      x[i] = scale * static_cast<float>(value);
    }
  }
  rotate_groups(x, d);
}

}  // namespace

void rotate_groups(float* x, int d) {
  for (int begin = 0; begin < d; begin += group_size(d - begin))
    rotate_group(x + begin, group_size(d - begin));
}

void encode_q8(std::span<const float> x, int8_t* codes, uint16_t* scale) {
  *scale = f32_to_f16(largest_of(x) / 127);
  const float stored = f16_to_f32(*scale);
  if (!(stored > 0)) {
    std::fill_n(codes, x.size(), int8_t{0});
    return;
  }
  const float inverse = 1 / stored;
  for (size_t i = 0; i < x.size(); i += 4) {
    alignas(16) int32_t four[4];
    _mm_store_si128(reinterpret_cast<__m128i*>(four), round_four(&x[i], _mm_set1_ps(inverse), -127, 127));
    for (size_t j = 0; j < 4; ++j)
      codes[i + j] = static_cast<int8_t>(four[j]);
  }
}

// Six trials (three reaches, both signs); of each, the scale that fits the chosen levels best by least squares. The
// trial with the largest (sum x y)^2 / sum y^2 leaves the smallest error.
void encode_q4(std::span<const float> x, uint8_t* codes, uint16_t* scale) {
  const float largest = largest_of(x);
  float best = -1;
  float best_inverse = 0;
  float best_scale = largest;  // 0 or NaN: no trial is made
  for (const float reach : kQ4Reach) {
    for (const float sign : {1.0F, -1.0F}) {
      if (!(largest > 0))
        break;
      const float inverse = sign * reach / largest;
      const Fit fit = fit_levels(x, inverse);
      if (fit.xy * fit.xy / fit.yy <= best)
        continue;
      best = fit.xy * fit.xy / fit.yy;
      best_inverse = inverse;
      best_scale = fit.xy / fit.yy;
    }
  }
  *scale = f32_to_f16(best_scale);
  for (size_t i = 0; i < x.size(); i += 4) {
    const FourIndices index(&x[i], _mm_set1_ps(best_inverse));  // no trial: 0, whose level is 0
    for (size_t j = 0; j < 4; ++j)
      codes[i + j] = kNearest.code[static_cast<size_t>(index.at[j])];
  }
}

void write_k_codes(std::byte* block, int slot, int head_dim, RowTypes type, const float* x) {
  RowCodes row;
  encode(x, head_dim, type.k, type.k == RowType::q8 ? kKeyBias : 0, row);
  for (int d = 0; d < head_dim; ++d)
    put_code(block, k_code_at(slot, d, type.k), type.k, row.code[d]);
  uint16_t* scales = halves(block + block_layout(head_dim, type).k_scales);
  for (int group = 0; group < n_groups(head_dim); ++group)
    scales[group * kBlockRows + slot] = row.scale[group];
}

void write_v_codes(std::byte* block, int slot, int head_dim, RowTypes type, const float* x) {
  RowCodes row;
  encode(x, head_dim, type.v, 0, row);
  const BlockLayout layout = block_layout(head_dim, type);
  for (int d = 0; d < head_dim; ++d)
    put_code(block + layout.v, v_code_at(slot, d, head_dim, type.v), type.v, row.code[d]);
  uint16_t* scales = halves(block + layout.v_scales);
  for (int group = 0; group < n_groups(head_dim); ++group)
    scales[group * kBlockRows + slot] = row.scale[group];
}

void read_k_codes(const std::byte* block, int slot, int head_dim, RowTypes type, float* x) {
  RowCodes row;
  for (int d = 0; d < head_dim; ++d)
    row.code[d] = get_code(block, k_code_at(slot, d, type.k), type.k);
  const uint16_t* scales = halves(block + block_layout(head_dim, type).k_scales);
  for (int group = 0; group < n_groups(head_dim); ++group)
    row.scale[group] = scales[group * kBlockRows + slot];
  decode(row, head_dim, type.k, type.k == RowType::q8 ? kKeyBias : 0, x);
}

void read_v_codes(const std::byte* block, int slot, int head_dim, RowTypes type, float* x) {
  RowCodes row;
  const BlockLayout layout = block_layout(head_dim, type);
  for (int d = 0; d < head_dim; ++d)
    row.code[d] = get_code(block + layout.v, v_code_at(slot, d, head_dim, type.v), type.v);
  const uint16_t* scales = halves(block + layout.v_scales);
  for (int group = 0; group < n_groups(head_dim); ++group)
    row.scale[group] = scales[group * kBlockRows + slot];
  decode(row, head_dim, type.v, 0, x);
}

void copy_k_codes(std::byte* dst, int dst_slot, const std::byte* src, int src_slot, int head_dim, RowTypes type) {
  const int n_quads = static_cast<int>(code_bytes(head_dim, type.k)) / (kBlockRows * 4);
  for (int quad = 0; quad < n_quads; ++quad)  // four bytes that hold nothing but this row, in both types
    std::memcpy(dst + (quad * kBlockRows + dst_slot) * 4, src + (quad * kBlockRows + src_slot) * 4, 4);
  const size_t offset = block_layout(head_dim, type).k_scales;
  for (int group = 0; group < n_groups(head_dim); ++group)
    halves(dst + offset)[group * kBlockRows + dst_slot] = halves(src + offset)[group * kBlockRows + src_slot];
}

void copy_v_codes(std::byte* dst, int dst_slot, const std::byte* src, int src_slot, int head_dim, RowTypes type) {
  const BlockLayout layout = block_layout(head_dim, type);
  for (int d = 0; d < head_dim; ++d) {
    put_code(dst + layout.v, v_code_at(dst_slot, d, head_dim, type.v), type.v,
             get_code(src + layout.v, v_code_at(src_slot, d, head_dim, type.v), type.v));
  }
  for (int group = 0; group < n_groups(head_dim); ++group)
    halves(dst + layout.v_scales)[group * kBlockRows + dst_slot] =
        halves(src + layout.v_scales)[group * kBlockRows + src_slot];
}

}  // namespace kedge
