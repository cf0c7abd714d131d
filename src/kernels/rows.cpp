// Reading and writing single rows. F16C converts where the CPU has it; the scalar path gives the same bits.
#include <immintrin.h>

#include <cstring>

#include "base/check.h"
#include "kernels/attention_targets.h"
#include "kernels/half.h"

namespace kedge {
namespace {

bool cpu_has_f16c() {
  static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  return has;
}

__attribute__((target("avx,f16c"))) void f32_to_f16_f16c(const float* x, uint16_t* y, int n) {
  const __m256 high = _mm256_set1_ps(kF16Max);
  const __m256 low = _mm256_set1_ps(-kF16Max);
  for (int i = 0; i < n; i += 8) {
    // min and max return their second operand when one is NaN, so x comes second.
    const __m256 clamped = _mm256_max_ps(low, _mm256_min_ps(high, _mm256_loadu_ps(x + i)));
    const __m128i half = _mm256_cvtps_ph(clamped, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(y + i), half);
  }
}

__attribute__((target("avx,f16c"))) void f16_to_f32_f16c(const uint16_t* x, float* y, int n) {
  for (int i = 0; i < n; i += 8) {
    _mm256_storeu_ps(y + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x + i))));
  }
}

// n is a multiple of 8 in both.
void narrow(const float* x, uint16_t* y, int n, RowType type) {
  if (type == RowType::f16 && cpu_has_f16c())
    return f32_to_f16_f16c(x, y, n);
  for (int i = 0; i < n; ++i)
    y[i] = from_f32(x[i], type);
}

void widen(const uint16_t* x, float* y, int n, RowType type) {
  if (type == RowType::f16 && cpu_has_f16c())
    return f16_to_f32_f16c(x, y, n);
  for (int i = 0; i < n; ++i)
    y[i] = to_f32(x[i], type);
}

// Slots [slot_begin, slot_end) of one block: k and v f32 [slot_end - slot_begin][head_dim], either may be nullptr.
void read_block(const KvHeadView& rows, const std::byte* block, int slot_begin, int slot_end, float* k, float* v) {
  const int d = rows.head_dim;
  alignas(64) float wide[kMaxHeadDim * kBlockRows];
  if (k != nullptr) {
    widen(reinterpret_cast<const uint16_t*>(block), wide, d * kBlockRows, rows.type);
    for (int slot = slot_begin; slot < slot_end; ++slot) {
      for (int i = 0; i < d; ++i)
        k[(slot - slot_begin) * d + i] = wide[k_index(slot, i, rows.type)];
    }
  }
  if (v != nullptr) {
    widen(reinterpret_cast<const uint16_t*>(block + rows.v_offset_bytes()), wide, d * kBlockRows, rows.type);
    for (int slot = slot_begin; slot < slot_end; ++slot) {
      for (int i = 0; i < d; ++i)
        v[(slot - slot_begin) * d + i] = wide[v_index(slot, i, d, rows.type)];
    }
  }
}

}  // namespace

void read_rows(const KvHeadView& rows, int row_begin, int row_end, float* k, float* v) {
  check(0 <= row_begin && row_begin <= row_end && row_end <= rows.n_rows, "read_rows: rows out of range");
  check(rows.head_dim <= kMaxHeadDim && rows.head_dim % 16 == 0, "read_rows: head_dim");
  for (int row = row_begin; row < row_end;) {
    const int slot = row % kBlockRows;
    const int left_in_block = kBlockRows - slot;
    const int n = left_in_block < row_end - row ? left_in_block : row_end - row;
    const ptrdiff_t offset = static_cast<ptrdiff_t>(row - row_begin) * rows.head_dim;
    read_block(rows, rows.k_block(row / kBlockRows), slot, slot + n, k != nullptr ? k + offset : nullptr,
               v != nullptr ? v + offset : nullptr);
    row += n;
  }
}

void write_row(std::byte* block, int slot, int head_dim, RowType type, const float* k, const float* v) {
  check(0 <= slot && slot < kBlockRows && head_dim <= kMaxHeadDim && head_dim % 16 == 0, "write_row: arguments");
  auto* k_half = reinterpret_cast<uint16_t*>(block);
  uint16_t* v_half = k_half + head_dim * kBlockRows;
  uint16_t narrow_k[kMaxHeadDim];
  uint16_t narrow_v[kMaxHeadDim];
  narrow(k, narrow_k, head_dim, type);
  narrow(v, narrow_v, head_dim, type);
  for (int i = 0; i < head_dim; ++i)
    k_half[k_index(slot, i, type)] = narrow_k[i];
  for (int i = 0; i < head_dim; ++i)
    v_half[v_index(slot, i, head_dim, type)] = narrow_v[i];
}

void copy_row(std::byte* dst, int dst_slot, const std::byte* src, int src_slot, int head_dim, RowType type) {
  check(0 <= dst_slot && dst_slot < kBlockRows && 0 <= src_slot && src_slot < kBlockRows, "copy_row: slot");
  auto* to = reinterpret_cast<uint16_t*>(dst);
  const auto* from = reinterpret_cast<const uint16_t*>(src);
  for (int i = 0; i < head_dim; ++i)
    to[k_index(dst_slot, i, type)] = from[k_index(src_slot, i, type)];
  to += head_dim * kBlockRows;
  from += head_dim * kBlockRows;
  if (type == RowType::f16) {
    std::memmove(to + dst_slot * head_dim, from + src_slot * head_dim, static_cast<size_t>(head_dim) * kRowTypeBytes);
    return;
  }
  for (int i = 0; i < head_dim; ++i) {
    to[v_index(dst_slot, i, head_dim, type)] = from[v_index(src_slot, i, head_dim, type)];
  }
}

}  // namespace kedge
