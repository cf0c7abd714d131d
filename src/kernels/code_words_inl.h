// Decode over q8 and q4 rows by 16-bit multiplications (pmaddwd): what AVX2, and AVX-512 without VNNI, have for it.
// Codes are unsigned bytes (q8 values are shifted up by 128; q4 looks its level up); the even bytes of a 32-bit lane
// meet the dimensions (or rows) 0 and 2 of a quad, the odd ones 1 and 3. Queries and weights carry 16 bits: nothing is
// lost. pmaddubsw would need half the multiplications, but adds two products of bytes into 16 bits and saturates there.
#pragma once

#include "kernels/code_step_inl.h"

namespace kedge {
namespace {

using WordSum = int32_t __attribute__((vector_size(simd::kLanes * 4)));

// How many vectors of codes fit the registers beside G heads: each takes two more for its even and odd bytes.
template <int G>
constexpr int kWordVecs =
    largest_power_of_two(min_int(4, simd::kAccumulators * 2 / 3 / G > 0 ? simd::kAccumulators * 2 / 3 / G : 1));
constexpr float kWordReach = 32767;

// Integers of 16 bits, four in a row, as two pairs in the first two lanes of four: x0 x2, x1 x3.
[[gnu::always_inline]] inline void store_pairs(simd::Ints x, int32_t* out) {
  simd::store_ints(out,
                   simd::or_ints(simd::and_ints(x, simd::set_ints(0xFFFF)), simd::shift_left(simd::swap_pairs(x), 16)));
}

template <RowType kType, int G>
struct WordQueries {
  alignas(64) int32_t pairs[G][kMaxHeadDim];  // of quad i at [4i] and [4i + 1]
  int32_t minus_bias[kMaxHeadDim / 16][G];    // -128 * sum of the group's queries
  float scale[G];

  void set(const DecodeQuery& query, int d) {
    using namespace simd;
    alignas(64) float q[kMaxHeadDim];
    for (int g = 0; g < G; ++g) {
      scale_floats(query.q + g * d, query.scale * kLog2e, q, d);
      turn(q, d);
      Vec largest = zero();
      for (int i = 0; i < d; i += kLanes)
        largest = max(largest, max(load(q + i), sub(zero(), load(q + i))));
      const float most = reduce_max(largest);
      scale[g] = most / kWordReach;
      const Vec inverse = set1(most > 0 ? kWordReach / most : 0.0F);
      int group = 0;
      for (int begin = 0; begin < d; begin += group_size(d - begin), ++group) {
        WordSum sum = {};
        for (int i = begin; i < begin + group_size(d - begin); i += kLanes) {
          const Ints x = to_ints(mul(load(q + i), inverse));
          store_pairs(x, pairs[g] + i);
          sum += (WordSum)x;
        }
        minus_bias[group][g] = -kKeyBias * add_lanes((Ints)sum);
      }
    }
  }
};

// sum[G][kVecs] += quads of unsigned bytes times the pairs at `at` of each head.
template <int G, int kVecs>
[[gnu::always_inline]] inline void add_words(WordSum (&sum)[G][kVecs], const simd::Ints (&codes)[kVecs],
                                             const int32_t* pairs, long head_stride, int at) {
  using namespace simd;
  Ints even[kVecs];
  Ints odd[kVecs];
#pragma GCC unroll 8
  for (int j = 0; j < kVecs; ++j) {
    even[j] = and_ints(codes[j], set_ints(0x00FF00FF));
    odd[j] = high_bytes(codes[j]);
  }
#pragma GCC unroll 8
  for (int g = 0; g < G; ++g) {
    const Ints first = set_ints(pairs[g * head_stride + at]);
    const Ints second = set_ints(pairs[g * head_stride + at + 1]);
#pragma GCC unroll 8
    for (int j = 0; j < kVecs; ++j)
      sum[g][j] += (WordSum)multiply_words(even[j], first) + (WordSum)multiply_words(odd[j], second);
  }
}

// Scores of kVecs * kLanes rows beginning with vector `vec` of the step: s f32 [G][64].
template <RowType kType, int G, int kVecs>
[[gnu::noinline]] void score_words(const CodeStep& step, int vec, const WordQueries<kType, G>& q, int d,
                                   size_t k_scales, float* s) {
  using namespace simd;
  const Ints levels = load_ints(reinterpret_cast<const std::byte*>(kLevelBytes.biased));
  int group = 0;
  for (int begin = 0; begin < d; begin += group_size(d - begin), ++group) {
    WordSum sum[G][kVecs];
    const std::byte* k[kVecs];
#pragma GCC unroll 8
    for (int j = 0; j < kVecs; ++j) {
      k[j] = step.block[(vec + j) / kVecsPerBlock] + (vec + j) % kVecsPerBlock * kLanes * 4;
#pragma GCC unroll 8
      for (int g = 0; g < G; ++g)
        sum[g][j] = (WordSum)set_ints(q.minus_bias[group][g]);
    }
    const int end = begin + group_size(d - begin);
    for (int i = begin; i < end; i += kType == RowType::q8 ? 4 : 8) {
      const long offset = static_cast<long>(i) / (kType == RowType::q8 ? 4 : 8) * 64;
      Ints codes[kVecs];
#pragma GCC unroll 8
      for (int j = 0; j < kVecs; ++j) {
        if ((vec + j) % kVecsPerBlock == 0)
          prefetch(step.next[(vec + j) / kVecsPerBlock] + offset);
        codes[j] = load_ints(k[j] + offset);
      }
      if constexpr (kType == RowType::q8) {
        add_words<G, kVecs>(sum, codes, q.pairs[0], kMaxHeadDim, i);
      } else {
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
          Ints looked_up[kVecs];
#pragma GCC unroll 8
          for (int j = 0; j < kVecs; ++j)
            looked_up[j] = lookup_bytes(levels, half_bytes(codes[j], half));
          add_words<G, kVecs>(sum, looked_up, q.pairs[0], kMaxHeadDim, i + 4 * half);
        }
      }
    }
#pragma GCC unroll 8
    for (int j = 0; j < kVecs; ++j) {
      const long row = static_cast<long>(vec + j) % kVecsPerBlock * kLanes + static_cast<long>(group) * kBlockRows;
      const Vec scale = load_f16(step.block[(vec + j) / kVecsPerBlock] + k_scales + row * 2);
#pragma GCC unroll 8
      for (int g = 0; g < G; ++g) {
        float* out = s + g * kStepRows + (vec + j) * kLanes;
        const Vec score = mul(mul(to_floats((Ints)sum[g][j]), scale), set1(q.scale[g]));
        store(out, group == 0 ? score : add(load(out), score));
      }
    }
  }
}

// Weights of one step times the scales of one channel group, as integers of 16 bits.
template <int G>
struct WordWeights {
  alignas(64) int32_t pairs[G][kStepRows];  // of the quad of rows i at [4i] and [4i + 1]
  float scale[G];
  int32_t minus_bias[G];

  // p: f32 [G][64].
  void set(const CodeStep& step, size_t scales_at, const float* p) {
    using namespace simd;
    for (int g = 0; g < G; ++g) {
      Vec w[kStepVecs];
      Vec largest = zero();
#pragma GCC unroll 8
      for (int j = 0; j < kStepVecs; ++j) {
        const std::byte* scales = step.block[j / kVecsPerBlock] + scales_at + j % kVecsPerBlock * kLanes * 2;
        // A slot without a row may hold any scale, NaN too.
        const Vec scale_of_rows = first_or(load_f16(scales), step.n_rows - j * kLanes, zero());
        w[j] = mul(load(p + g * kStepRows + j * kLanes), scale_of_rows);
        largest = max(largest, max(w[j], sub(zero(), w[j])));
      }
      const float most = reduce_max(largest);
      scale[g] = most / kWordReach;
      const Vec inverse = set1(most > 0 ? kWordReach / most : 0.0F);
      WordSum sum = {};
#pragma GCC unroll 8
      for (int j = 0; j < kStepVecs; ++j) {
        const Ints x = to_ints(mul(w[j], inverse));
        store_pairs(x, pairs[g] + j * kLanes);
        sum += (WordSum)x;
      }
      minus_bias[g] = -kKeyBias * add_lanes((Ints)sum);
    }
  }
};

// o[g][column ..] = o * correction + weights * values for kVecs * kLanes columns.
template <RowType kType, int G, int kVecs>
[[gnu::noinline]] void add_word_columns(const CodeStep& step, size_t v_at, int d, int column, const WordWeights<G>& w,
                                        const float* correction, float* o) {
  using namespace simd;
  const Ints levels = load_ints(reinterpret_cast<const std::byte*>(kLevelBytes.biased));
  WordSum sum[G][kVecs];
#pragma GCC unroll 8
  for (int g = 0; g < G; ++g) {
#pragma GCC unroll 8
    for (int j = 0; j < kVecs; ++j)
      sum[g][j] = (WordSum)set_ints(w.minus_bias[g]);
  }
  const int n_slots = (step.n_rows + kBlockRows - 1) / kBlockRows * kBlockRows;
  constexpr int kRows = kType == RowType::q8 ? 4 : 8;  // of one load
  for (int slot = 0; slot < n_slots; slot += kRows) {
    const long offset = static_cast<long>(v_at) + (static_cast<long>(slot % kBlockRows / kRows) * d + column) * 4;
    Ints codes[kVecs];
    prefetch(step.next[slot / kBlockRows] + offset);
#pragma GCC unroll 8
    for (int j = 0; j < kVecs; ++j)
      codes[j] = load_ints(step.block[slot / kBlockRows] + offset + j * kLanes * 4);
    if constexpr (kType == RowType::q8) {
#pragma GCC unroll 8
      for (int j = 0; j < kVecs; ++j)
        codes[j] = xor_ints(codes[j], set_ints(INT32_C(-0x7F7F7F80)));  // 0x80808080: i8 to u8
      add_words<G, kVecs>(sum, codes, w.pairs[0], kStepRows, slot);
    } else {
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        Ints looked_up[kVecs];
#pragma GCC unroll 8
        for (int j = 0; j < kVecs; ++j)
          looked_up[j] = lookup_bytes(levels, half_bytes(codes[j], half));
        add_words<G, kVecs>(sum, looked_up, w.pairs[0], kStepRows, slot + 4 * half);
      }
    }
  }
#pragma GCC unroll 8
  for (int g = 0; g < G; ++g) {
#pragma GCC unroll 8
    for (int j = 0; j < kVecs; ++j) {
      float* out = o + g * d + column + j * kLanes;
      const Vec before = mul(load(out), set1(correction[g]));
      store(out, fma(to_floats((Ints)sum[g][j]), set1(w.scale[g]), before));
    }
  }
}

struct WordDots {
  template <RowType kType, int G>
  using Queries = WordQueries<kType, G>;

  // s: f32 [G][64].
  template <RowType kType, int G>
  static void score(const CodeStep& step, const WordQueries<kType, G>& q, int d, size_t k_scales, float* s) {
    constexpr int kVecs = kWordVecs<G>;
    for (int vec = 0; vec * simd::kLanes < step.n_rows; vec += kVecs)
      score_words<kType, G, kVecs>(step, vec, q, d, k_scales, s);
  }
  template <RowType kType, int G>
  static void add_values(const CodeStep& step, const BlockLayout& layout, int d, const float* p,
                         const float* correction, float* o) {
    constexpr int kVecs = kWordVecs<G>;
    WordWeights<G> w;
    int group = 0;
    for (int begin = 0; begin < d; begin += group_size(d - begin), ++group) {
      w.set(step, layout.v_scales + static_cast<size_t>(group) * kBlockRows * 2, p);
      const int end = begin + group_size(d - begin);
      int column = begin;
      for (; column + kVecs * simd::kLanes <= end; column += kVecs * simd::kLanes)
        add_word_columns<kType, G, kVecs>(step, layout.v, d, column, w, correction, o);
      for (; column < end; column += simd::kLanes)
        add_word_columns<kType, G, 1>(step, layout.v, d, column, w, correction, o);
    }
  }
};

}  // namespace
}  // namespace kedge
