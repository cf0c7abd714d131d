// bf16 rows by vdpbf16ps: each 32-bit lane of a load holds two neighbouring dimensions of a key (or two neighbouring
// rows of a value), which is what the instruction multiplies and adds. Sums are f32.
//
// Decode splits each query into two bf16 halves (16 bits of mantissa): the loop waits for memory anyway, and the result
// is as good as f32 math. Prefill multiplies by rounded queries and rounded weights: relative error about 2^-9.
#pragma once

#include "kernels/decode_inl.h"
#include "kernels/tile_inl.h"

namespace kedge {
namespace {

[[gnu::always_inline]] inline __m512 dot_pairs(__m512 sum, __m512i a, __m512i b) {
  return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}
// 16 floats as bf16: what rounding keeps in `high`, what it leaves in `low`.
[[gnu::always_inline]] inline void split_floats(const float* x, float factor, uint32_t* high, uint32_t* low) {
  const __m512 scaled = simd::mul(simd::load(x), simd::set1(factor));
  const auto kept = (__m256i)_mm512_cvtneps_pbh(scaled);
  const __m512 wide = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(kept), 16));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(high), kept);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(low), (__m256i)_mm512_cvtneps_pbh(simd::sub(scaled, wide)));
}

template <RowType kType, int G, int kDim>
struct Bf16Scores {
  static_assert(kType == RowType::bf16);
  alignas(64) uint32_t high[kMaxHeadDim / 2 * G];  // bf16 pairs [head_dim / 2][G] of the scaled queries
  alignas(64) uint32_t low[kMaxHeadDim / 2 * G];   // of what rounding left

  void set(const DecodeQuery& query, int d) {
    uint32_t kept[8];
    uint32_t left[8];
    for (int g = 0; g < G; ++g) {
      for (int i = 0; i < d; i += 16) {
        split_floats(query.q + g * d + i, query.scale * kLog2e, kept, left);
        for (int j = 0; j < 8; ++j) {
          high[(i / 2 + j) * G + g] = kept[j];
          low[(i / 2 + j) * G + g] = left[j];
        }
      }
    }
  }

  template <int kVecs>
  [[gnu::always_inline]] inline void score(const Step& step, int vec, int d, float* s) const {
    __m512 sum[G][kVecs];
    const std::byte* k[kVecs];
    for (int j = 0; j < kVecs; ++j) {
      k[j] = step.block[vec + j];
      for (int g = 0; g < G; ++g)
        sum[g][j] = simd::zero();
    }
    for (int i = 0; i < d / 2; ++i) {
      __m512i key[kVecs];
#pragma GCC unroll 8
      for (int j = 0; j < kVecs; ++j) {
        prefetch(step.next[vec + j] + i * 64);
        key[j] = _mm512_loadu_si512(k[j] + i * 64);
      }
#pragma GCC unroll 8
      for (int g = 0; g < G; ++g) {
        const __m512i q_high = _mm512_set1_epi32(static_cast<int>(high[i * G + g]));
        const __m512i q_low = _mm512_set1_epi32(static_cast<int>(low[i * G + g]));
#pragma GCC unroll 8
        for (int j = 0; j < kVecs; ++j)
          sum[g][j] = dot_pairs(sum[g][j], key[j], q_high);
#pragma GCC unroll 8
        for (int j = 0; j < kVecs; ++j)
          sum[g][j] = dot_pairs(sum[g][j], key[j], q_low);
      }
    }
#pragma GCC unroll 8
    for (int g = 0; g < G; ++g) {
#pragma GCC unroll 8
      for (int j = 0; j < kVecs; ++j)
        simd::store(s + g * kStepRows + (vec + j) * simd::kLanes, sum[g][j]);
    }
  }

  [[gnu::always_inline]] inline void operator()(const Step& step, int d, float* s) const {
    constexpr int kVecs = G <= 5 ? 4 : 2;
    const int dim = kDim != 0 ? kDim : d;
    for (int vec = 0; vec * simd::kLanes < step.n_rows; vec += kVecs)
      score<kVecs>(step, vec, dim, s);
  }
};

struct PairTile {
  const uint32_t* a;  // bf16 pairs: row i at a + i * a_row
  long a_row;
  float* c;  // f32: row i at c + i * c_row
  long c_row;
  const float* factor = nullptr;  // f32 [6]: c is multiplied by it first
};

// s[6][kVecs * 16] = q[6][d] * keys of kVecs blocks.
template <int kVecs>
[[gnu::noinline]] void dot_keys(const PairTile& t, const std::byte* const* blocks, int d) {
  __m512 sum[kTileRows][kVecs];
#pragma GCC unroll 8
  for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kVecs; ++j)
      sum[i][j] = simd::zero();
  }
  const uint32_t* a3 = t.a + 3 * t.a_row;
  for (int k = 0; k < d / 2; ++k) {
    __m512i key[kVecs];
#pragma GCC unroll 8
    for (int j = 0; j < kVecs; ++j)
      key[j] = _mm512_loadu_si512(blocks[j] + k * 64);
#pragma GCC unroll 8
    for (int i = 0; i < kTileRows; ++i) {
      const uint32_t pair = i < 3 ? t.a[i * t.a_row + k] : a3[(i - 3) * t.a_row + k];
      const __m512i q = _mm512_set1_epi32(static_cast<int>(pair));
#pragma GCC unroll 8
      for (int j = 0; j < kVecs; ++j)
        sum[i][j] = dot_pairs(sum[i][j], key[j], q);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kVecs; ++j)
      simd::store(t.c + i * t.c_row + j * simd::kLanes, sum[i][j]);
  }
}

// o[6][column ..] = factor * o + p[6][2 * n_pairs] * values. v: the V half of each block, rows in pairs.
template <int kVecs>
[[gnu::noinline]] void dot_values(const PairTile& t, const std::byte* const* v, int n_pairs, int d, int column) {
  __m512 sum[kTileRows][kVecs];
#pragma GCC unroll 8
  for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kVecs; ++j) {
      sum[i][j] = simd::mul(simd::load(t.c + i * t.c_row + column + j * simd::kLanes), simd::set1(t.factor[i]));
    }
  }
  const uint32_t* a3 = t.a + 3 * t.a_row;
  for (int k = 0; k < n_pairs; ++k) {
    const std::byte* pair_row = v[k / 8] + (static_cast<long>(k % 8) * d + column) * 4;
    __m512i value[kVecs];
#pragma GCC unroll 8
    for (int j = 0; j < kVecs; ++j)
      value[j] = _mm512_loadu_si512(pair_row + j * 64);
#pragma GCC unroll 8
    for (int i = 0; i < kTileRows; ++i) {
      const uint32_t pair = i < 3 ? t.a[i * t.a_row + k] : a3[(i - 3) * t.a_row + k];
      const __m512i p = _mm512_set1_epi32(static_cast<int>(pair));
#pragma GCC unroll 8
      for (int j = 0; j < kVecs; ++j)
        sum[i][j] = dot_pairs(sum[i][j], value[j], p);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kVecs; ++j)
      simd::store(t.c + i * t.c_row + column + j * simd::kLanes, sum[i][j]);
  }
}

inline void dot_keys_of(const PairTile& t, const std::byte* const* blocks, int n_blocks, int d) {
  switch (n_blocks) {
    case 1:
      return dot_keys<1>(t, blocks, d);
    case 2:
      return dot_keys<2>(t, blocks, d);
    case 3:
      return dot_keys<3>(t, blocks, d);
    default:
      return dot_keys<4>(t, blocks, d);
  }
}

inline void dot_values_of(const PairTile& t, const std::byte* const* v, int n_pairs, int d) {
  int column = 0;
  for (; column + 64 <= d; column += 64)
    dot_values<4>(t, v, n_pairs, d, column);
  switch ((d - column) / 16) {
    case 1:
      return dot_values<1>(t, v, n_pairs, d, column);
    case 2:
      return dot_values<2>(t, v, n_pairs, d, column);
    case 3:
      return dot_values<3>(t, v, n_pairs, d, column);
    default:
      return;
  }
}

inline void round_to_pairs(const float* x, uint32_t* pairs, int n) {
  int i = 0;
  for (; i + 32 <= n; i += 32) {
    const __m512bh y = _mm512_cvtne2ps_pbh(simd::load(x + i + 16), simd::load(x + i));
    _mm512_storeu_si512(pairs + i / 2, (__m512i)y);
  }
  if (i < n) {
    const auto y = (__m256i)_mm512_cvtneps_pbh(simd::load(x + i));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(pairs + i / 2), y);
  }
}

// The four blocks from `row` on: keys as they lie; values too, but a partly filled last block is copied with zeros
// beyond its rows, because weight 0 times NaN would be NaN.
struct PairBlocks {
  const std::byte* k[kStepBlocks];
  const std::byte* v[kStepBlocks];
};

inline PairBlocks set_pair_blocks(const KvHeadView& rows, int row, int n_rows, uint32_t* copy) {
  PairBlocks out;
  const int last = (n_rows - 1) / kBlockRows;
  for (int b = 0; b < kStepBlocks; ++b) {
    out.k[b] = rows.k_block(row / kBlockRows + (b < last ? b : last));
    out.v[b] = rows.v_block(row / kBlockRows + (b < last ? b : last));
  }
  const int used = n_rows - last * kBlockRows;
  if (used == kBlockRows)
    return out;
  const auto* from = reinterpret_cast<const uint32_t*>(out.v[last]);
  const int d = rows.head_dim;
  for (int pair = 0; pair < kBlockRows / 2; ++pair) {
    const uint32_t keep = 2 * pair + 1 < used ? 0xFFFFFFFFU : (2 * pair < used ? 0xFFFFU : 0U);
    for (int i = 0; i < d; ++i)
      copy[pair * d + i] = from[pair * d + i] & keep;
  }
  out.v[last] = reinterpret_cast<const std::byte*>(copy);
  return out;
}

inline void tile_bf16(const KvHeadView& rows, const TileQueries& queries, const TileOutput& out, float* scratch) {
  const int d = rows.head_dim;
  const TileScratch t = set_tile(queries, d, scratch);
  pack_queries(queries, d, t);
  auto* q = reinterpret_cast<uint32_t*>(t.k);  // bf16 pairs [6][head_dim / 2]; k and v of the f32 path are free here
  auto* p = q + kTileRows * kMaxHeadDim / 2;   // bf16 pairs [6][32]
  auto* v_copy = reinterpret_cast<uint32_t*>(t.v);
  int visible[kTileQueries * kMaxGroup + kTileRows];
  alignas(64) float correction[16];
  for (int row = 0; row < rows.n_rows; row += kStepRows) {
    if (queries.n_queries == 0 || rows.position(row) > queries.positions[queries.n_queries - 1])
      break;
    const int n_rows = rows.n_rows - row < kStepRows ? rows.n_rows - row : kStepRows;
    count_visible(rows, row, n_rows, queries, t.padded, visible);
    const PairBlocks blocks = set_pair_blocks(rows, row, n_rows, v_copy);
    for (int i = 0; i < t.padded; i += kTileRows) {
      const int depth = highest_of_six(visible + i);
      if (depth == 0)
        continue;
      const int n_blocks = (depth + kBlockRows - 1) / kBlockRows;
      for (int r = 0; r < kTileRows; ++r)
        round_to_pairs(t.q + static_cast<long>(i + r) * d, q + r * d / 2, d);
      dot_keys_of({.a = q, .a_row = d / 2, .c = t.s, .c_row = kStepRows}, blocks.k, n_blocks, d);
      soften_tile(t, i, visible + i, n_blocks * kBlockRows, correction);
      for (int r = 0; r < kTileRows; ++r) {
        round_to_pairs(t.s + r * kStepRows, p + r * kStepRows / 2, n_blocks * kBlockRows);
      }
      dot_values_of(
          {.a = p, .a_row = kStepRows / 2, .c = t.o + static_cast<long>(i) * d, .c_row = d, .factor = correction},
          blocks.v, (depth + 1) / 2, d);
    }
  }
  write_tile(queries, out, d, t);
}

}  // namespace
}  // namespace kedge
