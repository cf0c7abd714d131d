// Decode: one query position, G query heads, a stream of rows read once. Template over the vectors of simd_*.h, which
// the including file has chosen.
//
// A step is four blocks (64 rows): scores of all G heads, one online softmax, values. The blocks of the next step are
// prefetched into L2 while the keys of this one are read: a block is exactly head_dim cache lines, and the key loop
// visits head_dim dimensions, so it asks for one line of each next block per dimension.
#pragma once

#include <limits>

#include "kernels/attention_targets.h"

namespace kedge {
namespace {

constexpr int kVecsPerBlock = kBlockRows / simd::kLanes;
constexpr int kStepVecs = kStepRows / simd::kLanes;

constexpr int largest_power_of_two(int limit) {
  int n = 1;
  while (2 * n <= limit) n *= 2;
  return n;
}

constexpr int min_int(int a, int b) { return a < b ? a : b; }

struct Step {
  const std::byte* block[kStepBlocks];  // beyond the last one: the last one again, masked later
  const std::byte* next[kStepBlocks];   // to prefetch
  int n_rows;
};

[[gnu::always_inline]] inline void set_step(const KvHeadView& rows, int row, int row_end, Step& step) {
  const int first = row / kBlockRows;
  step.n_rows = min_int(kStepRows, row_end - row);
  const int last = (row + step.n_rows - 1) / kBlockRows;
  const int head_blocks = rows.n_blocks();
  for (int b = 0; b < kStepBlocks; ++b) {
    step.block[b] = rows.k_block(min_int(first + b, last));
    const int ahead = first + kStepBlocks + b;
    step.next[b] = ahead < head_blocks ? rows.k_block(ahead) : step.block[b];
  }
}

// Scores of kVecs * kLanes rows beginning with vector `vec` of the step. q: f32 [head_dim][G]; s: f32 [G][64].
template <RowType kType, int G, int kVecs>
[[gnu::always_inline]] inline void score_rows(const Step& step, int vec, const float* q, int d, float* s) {
  using namespace simd;
  Vec sum[G][kVecs];
  const std::byte* k[kVecs];
  for (int j = 0; j < kVecs; ++j) {
    k[j] = step.block[(vec + j) / kVecsPerBlock] + (vec + j) % kVecsPerBlock * kLanes * (kType == RowType::f16 ? 2 : 4);
    for (int g = 0; g < G; ++g) sum[g][j] = zero();
  }
  constexpr int kDims = kType == RowType::f16 ? 1 : 2;  // dimensions per load
  for (int i = 0; i < d; i += kDims) {
#pragma GCC unroll 8
    for (int j = 0; j < kVecs; ++j) {
      if ((vec + j) % kVecsPerBlock == 0) {
        for (int e = 0; e < kDims; ++e) {
          _mm_prefetch(reinterpret_cast<const char*>(step.next[(vec + j) / kVecsPerBlock] + (i + e) * 64), _MM_HINT_T1);
        }
      }
      const std::byte* p = k[j] + i * kBlockRows * kRowTypeBytes;
      if constexpr (kType == RowType::f16) {
        const Vec key = load_f16(p);
#pragma GCC unroll 8
        for (int g = 0; g < G; ++g) sum[g][j] = fma(key, set1(q[i * G + g]), sum[g][j]);
      } else {
        Vec even;
        Vec odd;
        load_bf16_pairs(p, even, odd);
#pragma GCC unroll 8
        for (int g = 0; g < G; ++g) sum[g][j] = fma(even, set1(q[i * G + g]), sum[g][j]);
#pragma GCC unroll 8
        for (int g = 0; g < G; ++g) sum[g][j] = fma(odd, set1(q[(i + 1) * G + g]), sum[g][j]);
      }
    }
  }
#pragma GCC unroll 8
  for (int g = 0; g < G; ++g) {
#pragma GCC unroll 8
    for (int j = 0; j < kVecs; ++j) store(s + g * kStepRows + (vec + j) * kLanes, sum[g][j]);
  }
}

template <RowType kType, int G>
void score_step(const Step& step, const float* q, int d, float* s) {
  constexpr int kVecs = min_int(kStepVecs, largest_power_of_two(simd::kAccumulators / G));
  for (int vec = 0; vec * simd::kLanes < step.n_rows; vec += kVecs) {
    score_rows<kType, G, kVecs>(step, vec, q, d, s);
  }
}

// Turns scores into weights relative to the new running maximum. s: f32 [64], scratch beyond n_rows.
// Returns what the sums so far have to be multiplied by.
[[gnu::always_inline]] inline float soften_row(float* s, int n_rows, float& m, float& l) {
  using namespace simd;
  const Vec minus_infinity = set1(-std::numeric_limits<float>::infinity());
  Vec x[kStepVecs];
  Vec highest = set1(m);
#pragma GCC unroll 8
  for (int j = 0; j < kStepVecs; ++j) {
    x[j] = first_or(load(s + j * kLanes), n_rows - j * kLanes, minus_infinity);
    highest = max(highest, x[j]);
  }
  const float m_new = reduce_max(highest);
  const Vec base = set1(m_new);
  Vec sum = zero();
#pragma GCC unroll 8
  for (int j = 0; j < kStepVecs; ++j) {
    const Vec weight = exp(sub(x[j], base));
    store(s + j * kLanes, weight);
    sum = add(sum, weight);
  }
  const float correction = reduce_max(exp(set1(m - m_new)));
  l = l * correction + reduce_add(sum);
  m = m_new;
  return correction;
}

// o[g][column ..] = o * correction + sum over rows of weight * value, for kVecs vectors of columns.
// p: f32 [G][64] weights; o: f32 [G][d].
template <RowType kType, int G, int kVecs>
[[gnu::always_inline]] inline void add_values(const Step& step, int d, int column, const float* p,
                                              const float* correction, float* o) {
  using namespace simd;
  Vec sum[G][kVecs];
#pragma GCC unroll 8
  for (int g = 0; g < G; ++g) {
#pragma GCC unroll 8
    for (int j = 0; j < kVecs; ++j) sum[g][j] = mul(load(o + g * d + column + j * kLanes), set1(correction[g]));
  }
  const long v_offset = static_cast<long>(d) * kBlockRows * kRowTypeBytes;
  for (int row = 0; row < step.n_rows; ++row) {
    const std::byte* values = step.block[row / kBlockRows] + v_offset;
    if constexpr (kType == RowType::f16) {
      const std::byte* v = values + (static_cast<long>(row % kBlockRows) * d + column) * kRowTypeBytes;
#pragma GCC unroll 8
      for (int j = 0; j < kVecs; ++j) {
        const Vec value = load_f16(v + j * kLanes * kRowTypeBytes);
#pragma GCC unroll 8
        for (int g = 0; g < G; ++g) sum[g][j] = fma(value, set1(p[g * kStepRows + row]), sum[g][j]);
      }
    } else {
      const std::byte* v = values + (static_cast<long>(row % kBlockRows / 2) * d + column) * 4;
      const bool pair = row + 1 < step.n_rows;  // the second row of the last pair may be garbage
#pragma GCC unroll 8
      for (int j = 0; j < kVecs; ++j) {
        Vec even;
        Vec odd;
        load_bf16_pairs(v + j * kLanes * 4, even, odd);
        if (!pair) odd = zero();
#pragma GCC unroll 8
        for (int g = 0; g < G; ++g) sum[g][j] = fma(even, set1(p[g * kStepRows + row]), sum[g][j]);
#pragma GCC unroll 8
        for (int g = 0; g < G; ++g) sum[g][j] = fma(odd, set1(p[g * kStepRows + row + 1]), sum[g][j]);
      }
      ++row;
    }
  }
#pragma GCC unroll 8
  for (int g = 0; g < G; ++g) {
#pragma GCC unroll 8
    for (int j = 0; j < kVecs; ++j) store(o + g * d + column + j * kLanes, sum[g][j]);
  }
}

template <RowType kType, int G, int kVecs>
void add_values_step(const Step& step, int d, const float* p, const float* correction, float* o) {
  int column = 0;
  for (; column + kVecs * simd::kLanes <= d; column += kVecs * simd::kLanes) {
    add_values<kType, G, kVecs>(step, d, column, p, correction, o);
  }
  for (; column < d; column += simd::kLanes) add_values<kType, G, 1>(step, d, column, p, correction, o);
}

struct DecodeQuery {
  const float* q;  // f32 [G][head_dim]
  float scale;
};
struct Partial {
  float* m;  // f32 [G]
  float* l;  // f32 [G]
  float* o;  // f32 [G][head_dim]
};

// How keys meet queries: f32 here; bf16 dot products in attention_avx512bf16.cpp.
template <RowType kType, int G, int kDim>
struct F32Scores {
  alignas(64) float q[kMaxHeadDim * G];  // f32 [head_dim][G], scaled
  void set(const DecodeQuery& query, int d) {
    for (int g = 0; g < G; ++g) {
      for (int i = 0; i < d; ++i) q[i * G + g] = query.q[g * d + i] * query.scale;
    }
  }
  [[gnu::always_inline]] inline void operator()(const Step& step, int d, float* s) const {
    score_step<kType, G>(step, q, kDim != 0 ? kDim : d, s);
  }
};

// kDim: head_dim where it is worth a copy of its own, 0 = any.
template <RowType kType, int G, int kDim, template <RowType, int, int> class Scores>
void decode_group(const KvHeadView& rows, int row_begin, int row_end, const DecodeQuery& query, const Partial& out) {
  const int d = kDim != 0 ? kDim : rows.head_dim;
  constexpr int kColumnVecs = largest_power_of_two(min_int(simd::kAccumulators / G, kDim == 0 ? 4 : kDim / simd::kLanes));
  alignas(64) float s[G * kStepRows] = {};
  float correction[G];
  Scores<kType, G, kDim> scores;
  scores.set(query, d);
  for (int g = 0; g < G; ++g) {
    out.m[g] = -std::numeric_limits<float>::infinity();
    out.l[g] = 0;
  }
  for (int i = 0; i < G * d; ++i) out.o[i] = 0;
  Step step;
  for (int row = row_begin; row < row_end; row += kStepRows) {
    set_step(rows, row, row_end, step);
    scores(step, d, s);
    for (int g = 0; g < G; ++g) correction[g] = soften_row(s + g * kStepRows, step.n_rows, out.m[g], out.l[g]);
    add_values_step<kType, G, kColumnVecs>(step, d, s, correction, out.o);
  }
}

template <RowType kType, int G, template <RowType, int, int> class Scores>
void decode_any_dim(const KvHeadView& rows, int row_begin, int row_end, const DecodeQuery& query, const Partial& out) {
  if (rows.head_dim == 64) return decode_group<kType, G, 64, Scores>(rows, row_begin, row_end, query, out);
  if (rows.head_dim == 128) return decode_group<kType, G, 128, Scores>(rows, row_begin, row_end, query, out);
  return decode_group<kType, G, 0, Scores>(rows, row_begin, row_end, query, out);
}

using DecodeFunction = void (*)(const KvHeadView&, int, int, const DecodeQuery&, const Partial&);

// Groups of more than eight heads read the rows once per eight.
template <RowType kType, template <RowType, int, int> class Scores>
void decode(const KvHeadView& rows, int row_begin, int row_end, const float* q, int group, float scale,
            float* partial) {
  static constexpr DecodeFunction kBySize[8] = {
      decode_any_dim<kType, 1, Scores>, decode_any_dim<kType, 2, Scores>, decode_any_dim<kType, 3, Scores>,
      decode_any_dim<kType, 4, Scores>, decode_any_dim<kType, 5, Scores>, decode_any_dim<kType, 6, Scores>,
      decode_any_dim<kType, 7, Scores>, decode_any_dim<kType, 8, Scores>,
  };
  for (int g = 0; g < group; g += 8) {
    const DecodeQuery query = {.q = q + g * rows.head_dim, .scale = scale};
    const Partial out = {.m = partial + g, .l = partial + group + g, .o = partial + 2 * group + g * rows.head_dim};
    kBySize[min_int(8, group - g) - 1](rows, row_begin, row_end, query, out);
  }
}

}  // namespace
}  // namespace kedge
