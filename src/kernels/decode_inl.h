// Decode: one query position, G query heads, a stream of rows read once. Template over the vectors of simd_*.h, which
// the including file has chosen.
//
// A step is four blocks (64 rows): scores of all G heads, one online softmax, values. The blocks of the next step are
// prefetched into L2 meanwhile, each line by the loop that reads its counterpart of this step: keys by the key loop,
// values by the value loop. Asking for all of it from the
// key loop let memory idle in the value loop: 20.4 against 18.9 ns a row from memory (AVX-512, f16, three heads).
#pragma once

#include <limits>

#include "kernels/softmax_inl.h"

namespace kedge {
namespace {

constexpr int kVecsPerBlock = kBlockRows / simd::kLanes;

constexpr int largest_power_of_two(int limit) {
  int n = 1;
  while (2 * n <= limit)
    n *= 2;
  return n;
}

[[gnu::always_inline]] inline void prefetch(const std::byte* p) {
  _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1);
}

constexpr int min_int(int a, int b) { return a < b ? a : b; }

struct Step {
  const std::byte* block[kStepBlocks];  // beyond the last one: the last one again, masked later
  const std::byte* next[kStepBlocks];   // to prefetch
  int n_rows;
  // Columns are worked on less than a cache line at a time: asking for values line by line would jump about (AVX2,
  // head_dim 128, four heads: 55.8 against 46.4 ns a row), so the key loop asks for them too.
  bool keys_ask_for_values;
};

// Of 16-bit rows.
[[gnu::always_inline]] inline void set_step(const KvHeadView& rows, int row, int row_end, Step& step) {
  const int first = row / kBlockRows;
  const size_t block_bytes = static_cast<size_t>(rows.head_dim) * (kBlockRows * 2 * kRowTypeBytes);
  const auto block = [&](int i) { return rows.blocks + rows.block_ids[i] * block_bytes; };
  step.n_rows = min_int(kStepRows, row_end - row);
  const int last = (row + step.n_rows - 1) / kBlockRows;
  const int head_blocks = rows.n_blocks();
  for (int b = 0; b < kStepBlocks; ++b) {
    step.block[b] = block(min_int(first + b, last));
    const int ahead = first + kStepBlocks + b;
    step.next[b] = ahead < head_blocks ? block(ahead) : step.block[b];
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
    for (int g = 0; g < G; ++g)
      sum[g][j] = zero();
  }
  for (int i = 0; i < d; i += 2) {
#pragma GCC unroll 8
    for (int j = 0; j < kVecs; ++j) {
      if ((vec + j) % kVecsPerBlock != 0)
        continue;
      const std::byte* next = step.next[(vec + j) / kVecsPerBlock];
      prefetch(next + i * 32);
      if (step.keys_ask_for_values)
        prefetch(next + (d + i) * 32);
    }
    const long offset = static_cast<long>(i) * kBlockRows * kRowTypeBytes;
    if constexpr (kType == RowType::f16) {
#pragma GCC unroll 2
      for (int e = 0; e < 2; ++e) {  // outermost: a broadcast query serves kVecs products
#pragma GCC unroll 8
        for (int j = 0; j < kVecs; ++j) {
          const Vec key = load_f16(k[j] + offset + e * kBlockRows * kRowTypeBytes);
#pragma GCC unroll 8
          for (int g = 0; g < G; ++g)
            sum[g][j] = fma(key, set1(q[(i + e) * G + g]), sum[g][j]);
        }
      }
    } else {
#pragma GCC unroll 8
      for (int j = 0; j < kVecs; ++j) {
        Vec first;
        Vec second;
        load_bf16_pairs(k[j] + offset, first, second);
#pragma GCC unroll 8
        for (int g = 0; g < G; ++g)
          sum[g][j] = fma(first, set1(q[i * G + g]), sum[g][j]);
#pragma GCC unroll 8
        for (int g = 0; g < G; ++g)
          sum[g][j] = fma(second, set1(q[(i + 1) * G + g]), sum[g][j]);
      }
    }
  }
#pragma GCC unroll 8
  for (int g = 0; g < G; ++g) {
#pragma GCC unroll 8
    for (int j = 0; j < kVecs; ++j)
      store(s + g * kStepRows + (vec + j) * kLanes, sum[g][j]);
  }
}

template <RowType kType, int G>
void score_step(const Step& step, const float* q, int d, float* s) {
  constexpr int kVecs = min_int(kStepVecs, largest_power_of_two(simd::kAccumulators / G));
  for (int vec = 0; vec * simd::kLanes < step.n_rows; vec += kVecs) {
    score_rows<kType, G, kVecs>(step, vec, q, d, s);
  }
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
    for (int j = 0; j < kVecs; ++j)
      sum[g][j] = mul(load(o + g * d + column + j * kLanes), set1(correction[g]));
  }
  const long v_offset = static_cast<long>(d) * kBlockRows * kRowTypeBytes;
  const bool asks = column % (kType == RowType::f16 ? 32 : 16) == 0 && !step.keys_ask_for_values;
  for (int row = 0; row < step.n_rows; ++row) {
    const std::byte* values = step.block[row / kBlockRows] + v_offset;
    const std::byte* next = step.next[row / kBlockRows] + v_offset;
    if constexpr (kType == RowType::f16) {
      const long offset = (static_cast<long>(row % kBlockRows) * d + column) * kRowTypeBytes;
      const std::byte* v = values + offset;
      constexpr int kBytes = kVecs * kLanes * kRowTypeBytes;
      for (int byte = 0; asks && byte < kBytes; byte += 64)
        prefetch(next + offset + byte);
#pragma GCC unroll 8
      for (int j = 0; j < kVecs; ++j) {
        const Vec value = load_f16(v + j * kLanes * kRowTypeBytes);
#pragma GCC unroll 8
        for (int g = 0; g < G; ++g)
          sum[g][j] = fma(value, set1(p[g * kStepRows + row]), sum[g][j]);
      }
    } else {
      const long offset = (static_cast<long>(row % kBlockRows / 2) * d + column) * 4;
      const std::byte* v = values + offset;
      for (int byte = 0; asks && byte < kVecs * kLanes * 4; byte += 64)
        prefetch(next + offset + byte);
      const bool pair = row + 1 < step.n_rows;  // the second row of the last pair may be garbage
#pragma GCC unroll 8
      for (int j = 0; j < kVecs; ++j) {
        Vec even;
        Vec odd;
        load_bf16_pairs(v + j * kLanes * 4, even, odd);
        if (!pair)
          odd = zero();
#pragma GCC unroll 8
        for (int g = 0; g < G; ++g)
          sum[g][j] = fma(even, set1(p[g * kStepRows + row]), sum[g][j]);
#pragma GCC unroll 8
        for (int g = 0; g < G; ++g)
          sum[g][j] = fma(odd, set1(p[g * kStepRows + row + 1]), sum[g][j]);
      }
      ++row;
    }
  }
#pragma GCC unroll 8
  for (int g = 0; g < G; ++g) {
#pragma GCC unroll 8
    for (int j = 0; j < kVecs; ++j)
      store(o + g * d + column + j * kLanes, sum[g][j]);
  }
}

template <RowType kType, int G, int kVecs>
void add_values_step(const Step& step, int d, const float* p, const float* correction, float* o) {
  int column = 0;
  for (; column + kVecs * simd::kLanes <= d; column += kVecs * simd::kLanes) {
    add_values<kType, G, kVecs>(step, d, column, p, correction, o);
  }
  for (; column < d; column += simd::kLanes)
    add_values<kType, G, 1>(step, d, column, p, correction, o);
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
  alignas(64) float q[kMaxHeadDim * G];  // f32 [head_dim][G], scaled, in units of log 2
  void set(const DecodeQuery& query, int d) {
    for (int g = 0; g < G; ++g) {
      for (int i = 0; i < d; ++i)
        q[i * G + g] = query.q[g * d + i] * (query.scale * kLog2e);
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
  constexpr int kMostVecs = kDim == 0 ? 4 : kDim / simd::kLanes;
  constexpr int kColumnVecs = largest_power_of_two(min_int(simd::kAccumulators / G, kMostVecs));
  alignas(64) float s[G * kStepRows] = {};
  alignas(64) float m[16];
  alignas(64) float l[G * simd::kLanes] = {};
  alignas(64) float correction[16];
  int visible[G];
  const SoftmaxRows state = {.m = m, .l = l, .correction = correction};
  Scores<kType, G, kDim> scores;
  scores.set(query, d);
  for (int g = 0; g < G; ++g)
    m[g] = kNoMaximum;
  for (int i = 0; i < G * d; ++i)
    out.o[i] = 0;
  Step step;
  step.keys_ask_for_values = kColumnVecs * simd::kLanes * (kType == RowType::f16 ? 2 : 4) < 64;
  for (int row = row_begin; row < row_end; row += kStepRows) {
    set_step(rows, row, row_end, step);
    scores(step, d, s);
    if (step.n_rows == kStepRows) {
      soften_rows<G, true>(s, kStepVecs, nullptr, state);
    } else {
      for (int g = 0; g < G; ++g)
        visible[g] = step.n_rows;
      soften_rows<G, false>(s, kStepVecs, visible, state);
    }
    add_values_step<kType, G, kColumnVecs>(step, d, s, correction, out.o);
  }
  for (int g = 0; g < G; ++g) {
    out.m[g] = row_begin < row_end ? m[g] * kLn2 : -std::numeric_limits<float>::infinity();
    out.l[g] = simd::reduce_add(simd::load(l + g * simd::kLanes));
  }
}

template <RowType kType, int G, template <RowType, int, int> class Scores>
void decode_any_dim(const KvHeadView& rows, int row_begin, int row_end, const DecodeQuery& query, const Partial& out) {
  if (rows.head_dim == 64)
    return decode_group<kType, G, 64, Scores>(rows, row_begin, row_end, query, out);
  if (rows.head_dim == 128)
    return decode_group<kType, G, 128, Scores>(rows, row_begin, row_end, query, out);
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
