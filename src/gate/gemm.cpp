// C is cut into tiles of 6 x 16: 12 sums of 8 lanes or 6 of 16, which leaves registers for the operands. target_clones
// would say the same with less, but its resolver crashes at start under ThreadSanitizer (GCC 12).
#include "gate/gemm.h"

#include <immintrin.h>

#include <algorithm>

namespace kedge::gate {
namespace {

constexpr int kTileRows = 6;
constexpr int kTileColumns = 16;

// Rows is the tile's height; p.n is kTileColumns.
template <int Rows>
__attribute__((target("avx512f"))) void tile_avx512(const Gemm& p) {
  __m512 sum[Rows];
#pragma GCC unroll 6
  for (int i = 0; i < Rows; ++i)
    sum[i] = p.add ? _mm512_loadu_ps(p.c + i * p.c_row) : _mm512_setzero_ps();
  for (int64_t l = 0; l < p.k; ++l) {
    const __m512 b = _mm512_loadu_ps(p.b + l * p.b_row);
#pragma GCC unroll 6
    for (int i = 0; i < Rows; ++i)
      sum[i] = _mm512_add_ps(sum[i], _mm512_mul_ps(_mm512_set1_ps(p.a[i * p.a_row + l * p.a_column]), b));
  }
#pragma GCC unroll 6
  for (int i = 0; i < Rows; ++i)
    _mm512_storeu_ps(p.c + i * p.c_row, sum[i]);
}

template <int Rows>
__attribute__((target("avx2"))) void tile_avx2(const Gemm& p) {
  __m256 low[Rows];
  __m256 high[Rows];
#pragma GCC unroll 6
  for (int i = 0; i < Rows; ++i) {
    low[i] = p.add ? _mm256_loadu_ps(p.c + i * p.c_row) : _mm256_setzero_ps();
    high[i] = p.add ? _mm256_loadu_ps(p.c + i * p.c_row + 8) : _mm256_setzero_ps();
  }
  for (int64_t l = 0; l < p.k; ++l) {
    const __m256 b_low = _mm256_loadu_ps(p.b + l * p.b_row);
    const __m256 b_high = _mm256_loadu_ps(p.b + l * p.b_row + 8);
#pragma GCC unroll 6
    for (int i = 0; i < Rows; ++i) {
      const __m256 a = _mm256_broadcast_ss(p.a + i * p.a_row + l * p.a_column);
      low[i] = _mm256_add_ps(low[i], _mm256_mul_ps(a, b_low));
      high[i] = _mm256_add_ps(high[i], _mm256_mul_ps(a, b_high));
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < Rows; ++i) {
    _mm256_storeu_ps(p.c + i * p.c_row, low[i]);
    _mm256_storeu_ps(p.c + i * p.c_row + 8, high[i]);
  }
}

// Any p.m, any p.n up to kTileColumns.
void tile_baseline(const Gemm& p) {
  for (int i = 0; i < p.m; ++i) {
    float sum[kTileColumns] = {};
    float* c = p.c + i * p.c_row;
    if (p.add)
      std::copy_n(c, p.n, sum);
    for (int64_t l = 0; l < p.k; ++l) {
      const float a = p.a[i * p.a_row + l * p.a_column];
      const float* b = p.b + l * p.b_row;
      for (int j = 0; j < p.n; ++j)
        sum[j] += a * b[j];
    }
    std::copy_n(sum, p.n, c);
  }
}

using Tile = void (*)(const Gemm&);

Tile tile_for(GemmTarget target, int rows) {
  static constexpr Tile kAvx512[] = {tile_avx512<1>, tile_avx512<2>, tile_avx512<3>,
                                     tile_avx512<4>, tile_avx512<5>, tile_avx512<6>};
  static constexpr Tile kAvx2[] = {tile_avx2<1>, tile_avx2<2>, tile_avx2<3>, tile_avx2<4>, tile_avx2<5>, tile_avx2<6>};
  if (target == GemmTarget::avx512)
    return kAvx512[rows - 1];
  return target == GemmTarget::avx2 ? kAvx2[rows - 1] : tile_baseline;
}

Gemm tile_of(const Gemm& p, int row, int column) {
  Gemm tile = p;
  tile.m = std::min(kTileRows, p.m - row);
  tile.n = std::min(kTileColumns, p.n - column);
  tile.a += row * p.a_row;
  tile.b += column;
  tile.c += row * p.c_row + column;
  return tile;
}

}  // namespace

bool gemm_supported(GemmTarget target) {
  if (target == GemmTarget::avx512)
    return __builtin_cpu_supports("avx512f") != 0;
  return target == GemmTarget::baseline || __builtin_cpu_supports("avx2") != 0;
}

void gemm_on(GemmTarget target, const Gemm& product) {
  for (int column = 0; column < product.n; column += kTileColumns) {
    for (int row = 0; row < product.m; row += kTileRows) {
      const Gemm tile = tile_of(product, row, column);
      if (tile.n == kTileColumns)
        tile_for(target, tile.m)(tile);
      else
        tile_baseline(tile);
    }
  }
}

void gemm(const Gemm& product) {
  static const GemmTarget kBest = gemm_supported(GemmTarget::avx512) ? GemmTarget::avx512
                                  : gemm_supported(GemmTarget::avx2) ? GemmTarget::avx2
                                                                     : GemmTarget::baseline;
  gemm_on(kBest, product);
}

}  // namespace kedge::gate
