// Decode over q8 and q4 rows by vpdpbusd: four products of an unsigned and a signed byte added to each 32-bit lane.
//
//   keys    u8 (code + 128; q4 looks the level up in a register) times queries i8; 128 times the sum of the queries is
//           taken off, then the row's scale multiplies
//   values  the row's scale goes into its weight first, because rows are what the lanes add over; weights are then
//           rounded to integers, 64 rows at a time, relative to the largest of them
//
// q8 carries queries in 15 bits and weights in 16 (two bytes, two products each): nothing is lost to rounding. q4 carries
// both in 8: its own levels are far coarser. Its weights are rounded down or up by a fixed pattern over the slots, so
// that many small ones beside a large one (a sink) keep their sum. Measured: docs/kv-types.md.
#pragma once

#include "kernels/decode_inl.h"
#include "kernels/gemm_inl.h"
#include "kernels/widen_inl.h"

namespace kedge {
namespace {

constexpr int kKeyBias = 128;

template <RowType kType>
constexpr int kParts = kType == RowType::q8 ? 2 : 1;  // bytes that carry a query or a weight

// How many vectors of accumulators fit the registers beside G heads.
template <RowType kType, int G>
constexpr int kCodeVecs = min_int(4, largest_power_of_two(simd::kAccumulators / (G * kParts<kType>)));

struct LevelBytes {
  alignas(64) uint8_t biased[64]{};  // level + 128, four times
  constexpr LevelBytes() {
    for (int i = 0; i < 64; ++i)
      biased[i] = static_cast<uint8_t>(kQ4Levels[i % 16] + kKeyBias);
  }
};
constexpr LevelBytes kLevelBytes;

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

// Blocks of one step, as Step, of quantised rows.
struct CodeStep {
  const std::byte* block[kStepBlocks];  // beyond the last one: the last one again, masked later
  const std::byte* next[kStepBlocks];   // to prefetch
  int n_rows;
};

[[gnu::always_inline]] inline void set_code_step(const KvHeadView& rows, size_t block_bytes, int row, int row_end,
                                                 CodeStep& step) {
  const int first = row / kBlockRows;
  step.n_rows = min_int(kStepRows, row_end - row);
  const int last = (row + step.n_rows - 1) / kBlockRows;
  const int head_blocks = (rows.n_rows + kBlockRows - 1) / kBlockRows;
  for (int b = 0; b < kStepBlocks; ++b) {
    step.block[b] = rows.blocks + rows.block_ids[min_int(first + b, last)] * block_bytes;
    const int ahead = first + kStepBlocks + b;
    step.next[b] = ahead < head_blocks ? rows.blocks + rows.block_ids[ahead] * block_bytes : step.block[b];
  }
}

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
      row_scale[b] = simd::first_or(simd::load_f16(step.block[b] + scales_at), step.n_rows - b * kBlockRows, simd::zero());
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

template <RowType kK, RowType kV, int G>
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
  CodeQueries<kK, G> q;
  q.set(query, d);
  fill_floats(o, 0, G * d);
  fill_floats(m, kNoMaximum, 16);
  CodeStep step;
  for (int row = row_begin; row < row_end; row += kStepRows) {
    set_code_step(rows, layout.bytes, row, row_end, step);
    constexpr int kVecs = kCodeVecs<kK, G>;
    for (int vec = 0; vec * kBlockRows < step.n_rows; vec += kVecs) {
      for (int j = 0; j < kVecs; ++j)
        prefetch(step.next[vec + j] + layout.k_scales);
      score_codes<kK, G, kVecs>(step, vec, q, d, layout.k_scales, s);
    }
    if (step.n_rows == kStepRows) {
      soften_rows<G, true>(s, kStepVecs, nullptr, state);
    } else {
      for (int g = 0; g < G; ++g)
        visible[g] = step.n_rows;
      soften_rows<G, false>(s, kStepVecs, visible, state);
    }
    add_code_values<kV, G>(step, layout, d, s, correction, o);
  }
  turn_rows(o, G, d);
  for (int g = 0; g < G; ++g) {
    out.m[g] = row_begin < row_end ? m[g] * kLn2 : -std::numeric_limits<float>::infinity();
    out.l[g] = simd::reduce_add(simd::load(l + g * simd::kLanes));
    scale_floats(o + g * d, 1, out.o + g * d, d);
  }
}

// Rows of a head without a tail.
template <RowType kK, RowType kV>
void decode_codes(const KvHeadView& rows, int row_begin, int row_end, const float* q, int group, float scale,
                  float* partial) {
  static constexpr DecodeFunction kBySize[8] = {
      decode_codes_group<kK, kV, 1>, decode_codes_group<kK, kV, 2>, decode_codes_group<kK, kV, 3>,
      decode_codes_group<kK, kV, 4>, decode_codes_group<kK, kV, 5>, decode_codes_group<kK, kV, 6>,
      decode_codes_group<kK, kV, 7>, decode_codes_group<kK, kV, 8>,
  };
  for (int g = 0; g < group; g += 8) {
    const DecodeQuery query = {.q = q + g * rows.head_dim, .scale = scale};
    const Partial out = {.m = partial + g, .l = partial + group + g, .o = partial + 2 * group + g * rows.head_dim};
    kBySize[min_int(8, group - g) - 1](rows, row_begin, row_end, query, out);
  }
}

}  // namespace
}  // namespace kedge
