// What a kernel sees of the KV store: plain old data, no ownership. This is also the store's data layout.
//
//   block = kBlockRows rows of ONE kv head of ONE layer, contiguous, block_bytes long:
//     | K codes | V codes | K scales | V scales | to a multiple of 64 bytes; 16-bit types have no scales
//     K, dim-major:  f16  [head_dim][16]            (one dimension of 16 rows is one 32-byte load)
//                    bf16 [head_dim/2][16][2]       (pairs of dimensions interleaved: vdpbf16ps without shuffles)
//                    q8   u8 [head_dim/4][16][4]    (quads of dimensions: vpdpbusd without shuffles; code + 128)
//                    q4   u8 [head_dim/8][16][4]    (dimension 8j+e in the low half of byte (j, row, e), 8j+4+e high)
//     V, row-major:  f16  [16][head_dim]
//                    bf16 [8][head_dim][2]          (pairs of rows interleaved)
//                    q8   i8 [4][head_dim][4]       (quads of rows interleaved)
//                    q4   u8 [2][head_dim][4]       (row 8j+r in the low half of byte (j, dimension, r), 8j+4+r high)
//     scales         f16  [n_groups(head_dim)][16]  (of each row and channel group; quant.h)
//
// A quantised row is self-contained: its bytes depend on no other row, and moving it is copying them.
//
// Rows of a head are numbered 0..n_rows-1 in order of position (strictly ascending). The newest n_tail of them may lie
// in a tail of f16 blocks of their own (a store of quantised rows keeps recent ones in full); the others are the body.
// Row r of the body is slot r % 16 of block block_ids[r / 16]; the tail likewise, counted from its first row.
// Slots at and beyond the last row of a block list hold garbage and must never be used (the store zeroes a block when
// it is handed out, so that a vector load over the end stays finite).
#pragma once

#include <cstddef>
#include <cstdint>

namespace kedge {

inline constexpr int kBlockRows = 16;

enum class RowType : uint8_t { f16, bf16, q8, q4 };
inline constexpr int kRowTypeBytes = 2;  // of an element of the 16-bit types

constexpr bool is_quantised(RowType type) { return type == RowType::q8 || type == RowType::q4; }

struct RowTypes {
  RowType k = RowType::f16;
  RowType v = RowType::f16;
  constexpr RowTypes() = default;
  constexpr RowTypes(RowType both) : k(both), v(both) {}  // NOLINT(google-explicit-constructor): "one type for both"
  constexpr RowTypes(RowType k_in, RowType v_in) : k(k_in), v(v_in) {}
  constexpr bool operator==(const RowTypes&) const = default;
  constexpr bool quantised() const { return is_quantised(k) || is_quantised(v); }
};

// Channels of a head are rotated and scaled in groups: as many of 64 as fit, then one of 32, then one of 16.
inline constexpr int kGroupChannels = 64;
constexpr int group_size(int channels_left) { return channels_left >= 64 ? 64 : channels_left >= 32 ? 32 : 16; }
constexpr int n_groups(int head_dim) { return head_dim / 64 + (head_dim / 32) % 2 + (head_dim / 16) % 2; }

// Bytes of one block's K (or V) codes, and of its scales.
constexpr size_t code_bytes(int head_dim, RowType type) {
  const size_t n = static_cast<size_t>(head_dim) * kBlockRows;
  return type == RowType::q4 ? n / 2 : type == RowType::q8 ? n : n * kRowTypeBytes;
}
constexpr size_t scale_bytes(int head_dim, RowType type) {
  return is_quantised(type) ? static_cast<size_t>(n_groups(head_dim)) * kBlockRows * 2 : 0;
}

// Bytes of K and V of one row, scales included.
constexpr size_t row_bytes(int head_dim, RowTypes type) {
  return (code_bytes(head_dim, type.k) + code_bytes(head_dim, type.v) + scale_bytes(head_dim, type.k) +
          scale_bytes(head_dim, type.v)) /
         kBlockRows;
}

// Where the parts of a block begin, in bytes from its start.
struct BlockLayout {
  size_t v, k_scales, v_scales, bytes;
};
constexpr BlockLayout block_layout(int head_dim, RowTypes type) {
  const size_t v = code_bytes(head_dim, type.k);
  const size_t k_scales = v + code_bytes(head_dim, type.v);
  const size_t v_scales = k_scales + scale_bytes(head_dim, type.k);
  return {.v = v,
          .k_scales = k_scales,
          .v_scales = v_scales,
          .bytes = (v_scales + scale_bytes(head_dim, type.v) + 63) / 64 * 64};
}

struct KvHeadView {
  const std::byte* blocks;    // first byte of block 0 of the arena, 64-byte aligned; block b is at blocks + b *
                              // block_bytes
  const int32_t* positions;   // i32 [n_blocks_total][kBlockRows]: position of block b, slot s is positions[b *
                              // kBlockRows + s]
  const uint32_t* block_ids;  // u32 [ceil(n_body / kBlockRows)]: the head's blocks in row order
  int32_t n_rows;             // the live range is [0, n_rows): the one definition of it
  int32_t head_dim;           // multiple of 16, at most 256
  RowTypes type;              // of the body

  // The tail: rows [n_rows - n_tail, n_rows) in f16 blocks; the same three pointers over its own arena.
  const std::byte* tail_blocks = nullptr;
  const int32_t* tail_positions = nullptr;
  const uint32_t* tail_ids = nullptr;
  int32_t n_tail = 0;

  int32_t n_body() const { return n_rows - n_tail; }
  // The two parts as heads of their own, rows counted from 0.
  KvHeadView body() const {
    return {.blocks = blocks,
            .positions = positions,
            .block_ids = block_ids,
            .n_rows = n_body(),
            .head_dim = head_dim,
            .type = type};
  }
  KvHeadView tail() const {
    return {.blocks = tail_blocks,
            .positions = tail_positions,
            .block_ids = tail_ids,
            .n_rows = n_tail,
            .head_dim = head_dim,
            .type = RowType::f16};
  }

  // Of the body's blocks.
  BlockLayout layout() const { return block_layout(head_dim, type); }
  size_t block_bytes() const { return layout().bytes; }
  size_t v_offset_bytes() const { return code_bytes(head_dim, type.k); }
  int32_t n_blocks() const { return (n_body() + kBlockRows - 1) / kBlockRows; }
  const std::byte* k_block(int32_t i) const { return blocks + block_ids[i] * block_bytes(); }
  const std::byte* v_block(int32_t i) const { return k_block(i) + v_offset_bytes(); }

  int32_t position(int32_t row) const {
    const bool in_tail = row >= n_body();
    const int32_t* at = in_tail ? tail_positions : positions;
    const uint32_t* ids = in_tail ? tail_ids : block_ids;
    const int32_t i = in_tail ? row - n_body() : row;
    return at[static_cast<size_t>(ids[i / kBlockRows]) * kBlockRows + static_cast<size_t>(i % kBlockRows)];
  }
};

}  // namespace kedge
