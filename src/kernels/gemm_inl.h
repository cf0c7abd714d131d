// The matrix kernel that prefill and scoring share. Over the vectors of simd_*.h.
#pragma once

#include "kernels/attention_targets.h"

namespace kedge {
namespace {

struct GemmTile {
  const float* a;  // element (i, k) at a[i * a_row + k * kAStep]
  long a_row;
  const float* b;  // row k at b + k * b_step
  long b_step;
  float* c;  // row i at c + i * c_row
  long c_row;
  int depth;
  const float* factor = nullptr;  // f32 [6]: c is multiplied by it first (Start::scaled)
};

enum class Start { zero, sum, scaled };  // what the product is added to: nothing, c, factor * c

// c[6][kVecs * kLanes] = start + a[6][depth] * b[depth][kVecs * kLanes].
template <int kVecs, Start kStart, int kAStep>
[[gnu::noinline]] void gemm_columns(const GemmTile& t, int column) {
  using namespace simd;
  Vec sum[kTileRows][kVecs];
#pragma GCC unroll 8
  for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kVecs; ++j) {
      sum[i][j] = kStart == Start::zero ? zero() : load(t.c + i * t.c_row + column + j * kLanes);
      if constexpr (kStart == Start::scaled)
        sum[i][j] = mul(sum[i][j], set1(t.factor[i]));
    }
  }
  const float* a0 = t.a;
  const float* a3 = t.a + 3 * t.a_row;
  const long a_row = t.a_row;
  const float* b = t.b + column;
  const long b_step = t.b_step;
  const int depth = t.depth;
  float* c_out = t.c + column;
  const long c_row = t.c_row;
  for (int k = 0; k < depth; ++k, b += b_step, a0 += kAStep, a3 += kAStep) {
    Vec right[kVecs];
#pragma GCC unroll 8
    for (int j = 0; j < kVecs; ++j)
      right[j] = load(b + j * kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < kTileRows; ++i) {
      const Vec left = set1(i < 3 ? a0[i * a_row] : a3[(i - 3) * a_row]);
#pragma GCC unroll 8
      for (int j = 0; j < kVecs; ++j)
        sum[i][j] = fma(left, right[j], sum[i][j]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kTileRows; ++i) {
    float* c = c_out + i * c_row;
#pragma GCC unroll 8
    for (int j = 0; j < kVecs; ++j)
      store(c + j * kLanes, sum[i][j]);
  }
}

// n_columns is a multiple of 16.
template <Start kStart, int kAStep>
void gemm(const GemmTile& t, int n_columns) {
  constexpr int kWide = simd::kGemmVecs * simd::kLanes;
  int column = 0;
  for (; column + kWide <= n_columns; column += kWide)
    gemm_columns<simd::kGemmVecs, kStart, kAStep>(t, column);
  switch ((n_columns - column) / simd::kLanes) {  // 0 on AVX2, where kWide is 16
    case 1:
      return gemm_columns<1, kStart, kAStep>(t, column);
    case 2:
      return gemm_columns<2, kStart, kAStep>(t, column);
    case 3:
      return gemm_columns<3, kStart, kAStep>(t, column);
    default:
      return;
  }
}

// y = x * factor, n a multiple of 16.
[[gnu::always_inline]] inline void scale_floats(const float* x, float factor, float* y, int n) {
  using namespace simd;
  for (int i = 0; i < n; i += kLanes)
    store(y + i, mul(load(x + i), set1(factor)));
}
[[gnu::always_inline]] inline void fill_floats(float* y, float value, long n) {
  for (long i = 0; i < n; ++i)
    y[i] = value;
}

// Row `i` of a tile's queries (time-major: i = t * group + g).
[[gnu::always_inline]] inline const float* query_row(const TileQueries& queries, int i) {
  return queries.q + i / queries.group * queries.row_stride + i % queries.group * queries.head_stride;
}

}  // namespace
}  // namespace kedge
