// Reading and writing single rows. F16C converts where the CPU has it; the scalar path gives the same bits.
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "kernels/attention_targets.h"
#include "kernels/gather.h"
#include "kernels/half.h"
#include "kernels/quant.h"

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

// K (or V) of slots [slot_begin, slot_end) of a block of 16-bit rows: out f32 [slot_end - slot_begin][head_dim].
void read_k_halves(const KvHeadView& rows, const std::byte* block, int slot_begin, int slot_end, float* k) {
  const int d = rows.head_dim;
  alignas(64) float wide[kMaxHeadDim * kBlockRows];
  widen(reinterpret_cast<const uint16_t*>(block), wide, d * kBlockRows, rows.type.k);
  for (int slot = slot_begin; slot < slot_end; ++slot) {
    for (int i = 0; i < d; ++i)
      k[(slot - slot_begin) * d + i] = wide[k_index(slot, i, rows.type.k)];
  }
}
void read_v_halves(const KvHeadView& rows, const std::byte* block, int slot_begin, int slot_end, float* v) {
  const int d = rows.head_dim;
  alignas(64) float wide[kMaxHeadDim * kBlockRows];
  widen(reinterpret_cast<const uint16_t*>(block + rows.v_offset_bytes()), wide, d * kBlockRows, rows.type.v);
  for (int slot = slot_begin; slot < slot_end; ++slot) {
    for (int i = 0; i < d; ++i)
      v[(slot - slot_begin) * d + i] = wide[v_index(slot, i, d, rows.type.v)];
  }
}

// Slots [slot_begin, slot_end) of one block: k and v f32 [slot_end - slot_begin][head_dim], either may be nullptr.
void read_block(const KvHeadView& rows, const std::byte* block, int slot_begin, int slot_end, float* k, float* v) {
  const int d = rows.head_dim;
  if (k != nullptr && !is_quantised(rows.type.k))
    read_k_halves(rows, block, slot_begin, slot_end, k);
  if (v != nullptr && !is_quantised(rows.type.v))
    read_v_halves(rows, block, slot_begin, slot_end, v);
  for (int slot = slot_begin; slot < slot_end; ++slot) {
    if (k != nullptr && is_quantised(rows.type.k))
      read_k_codes(block, slot, d, rows.type, k + (slot - slot_begin) * d);
    if (v != nullptr && is_quantised(rows.type.v))
      read_v_codes(block, slot, d, rows.type, v + (slot - slot_begin) * d);
  }
}

// Rows of a head without a tail.
void read_part(const KvHeadView& rows, int row_begin, int row_end, float* k, float* v) {
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

}  // namespace

void read_rows(const KvHeadView& rows, int row_begin, int row_end, float* k, float* v) {
  check(0 <= row_begin && row_begin <= row_end && row_end <= rows.n_rows, "read_rows: rows out of range");
  check(rows.head_dim <= kMaxHeadDim && rows.head_dim % 16 == 0, "read_rows: head_dim");
  const int border = std::clamp(rows.n_body(), row_begin, row_end);
  read_part(rows, row_begin, border, k, v);
  if (border == row_end)
    return;
  const ptrdiff_t offset = static_cast<ptrdiff_t>(border - row_begin) * rows.head_dim;
  read_part(rows.tail(), border - rows.n_body(), row_end - rows.n_body(), k != nullptr ? k + offset : nullptr,
            v != nullptr ? v + offset : nullptr);
}

void write_row(std::byte* block, int slot, int head_dim, RowTypes type, const float* k, const float* v) {
  check(0 <= slot && slot < kBlockRows && head_dim <= kMaxHeadDim && head_dim % 16 == 0, "write_row: arguments");
  uint16_t narrowed[kMaxHeadDim];
  if (is_quantised(type.k)) {
    write_k_codes(block, slot, head_dim, type, k);
  } else {
    auto* to = reinterpret_cast<uint16_t*>(block);
    narrow(k, narrowed, head_dim, type.k);
    for (int i = 0; i < head_dim; ++i)
      to[k_index(slot, i, type.k)] = narrowed[i];
  }
  if (is_quantised(type.v)) {
    write_v_codes(block, slot, head_dim, type, v);
  } else {
    auto* to = reinterpret_cast<uint16_t*>(block + code_bytes(head_dim, type.k));
    narrow(v, narrowed, head_dim, type.v);
    for (int i = 0; i < head_dim; ++i)
      to[v_index(slot, i, head_dim, type.v)] = narrowed[i];
  }
}

void copy_v_row(std::byte* dst, int dst_slot, const std::byte* src, int src_slot, int head_dim, RowTypes type) {
  if (is_quantised(type.v))
    return copy_v_codes(dst, dst_slot, src, src_slot, head_dim, type);
  auto* to = reinterpret_cast<uint16_t*>(dst + code_bytes(head_dim, type.k));
  const auto* from = reinterpret_cast<const uint16_t*>(src + code_bytes(head_dim, type.k));
  if (type.v == RowType::f16) {
    std::memmove(to + dst_slot * head_dim, from + src_slot * head_dim, static_cast<size_t>(head_dim) * kRowTypeBytes);
    return;
  }
  for (int i = 0; i < head_dim; ++i) {
    to[v_index(dst_slot, i, head_dim, type.v)] = from[v_index(src_slot, i, head_dim, type.v)];
  }
}

void copy_row(std::byte* dst, int dst_slot, const std::byte* src, int src_slot, int head_dim, RowTypes type) {
  check(0 <= dst_slot && dst_slot < kBlockRows && 0 <= src_slot && src_slot < kBlockRows, "copy_row: slot");
  copy_v_row(dst, dst_slot, src, src_slot, head_dim, type);
  if (is_quantised(type.k))
    return copy_k_codes(dst, dst_slot, src, src_slot, head_dim, type);
  auto* to = reinterpret_cast<uint16_t*>(dst);
  const auto* from = reinterpret_cast<const uint16_t*>(src);
  for (int i = 0; i < head_dim; ++i)
    to[k_index(dst_slot, i, type.k)] = from[k_index(src_slot, i, type.k)];
}

}  // namespace kedge
