// What a kernel sees of the KV store: plain old data, no ownership. This is also the store's data layout.
//
//   block = kBlockRows rows of ONE kv head of ONE layer, contiguous, block_bytes long:
//     K, dim-major:  f16  [head_dim][16]            (one dimension of 16 rows is one 32-byte load)
//                    bf16 [head_dim/2][16][2]       (pairs of dimensions interleaved: vdpbf16ps without shuffles)
//     V, row-major:  f16  [16][head_dim]
//                    bf16 [8][head_dim][2]          (pairs of rows interleaved)
//
// Rows of a head are numbered 0..n_rows-1 in order of position (strictly ascending). Row r is slot r % 16 of block
// block_ids[r / 16]. Slots at and beyond n_rows of the last block hold finite garbage and must never be used
// (the store zeroes a block when it is handed out, so that a vector load over the tail stays finite).
#pragma once

#include <cstddef>
#include <cstdint>

namespace kedge {

inline constexpr int kBlockRows = 16;

enum class RowType : uint8_t { f16, bf16 };
inline constexpr int kRowTypeBytes = 2;

struct KvHeadView {
  const std::byte* blocks;    // first byte of block 0 of the arena, 64-byte aligned; block b is at blocks + b *
                              // block_bytes
  const int32_t* positions;   // i32 [n_blocks_total][kBlockRows]: position of block b, slot s is positions[b *
                              // kBlockRows + s]
  const uint32_t* block_ids;  // u32 [ceil(n_rows / kBlockRows)]: the head's blocks in row order
  int32_t n_rows;             // the live range is [0, n_rows): the one definition of it
  int32_t head_dim;           // multiple of 16, at most 256
  RowType type;               // of K and V alike
  size_t block_bytes() const { return static_cast<size_t>(head_dim) * kBlockRows * kRowTypeBytes * 2; }
  size_t v_offset_bytes() const { return static_cast<size_t>(head_dim) * kBlockRows * kRowTypeBytes; }
  int32_t n_blocks() const { return (n_rows + kBlockRows - 1) / kBlockRows; }
  const std::byte* k_block(int32_t i) const { return blocks + block_ids[i] * block_bytes(); }
  const std::byte* v_block(int32_t i) const { return k_block(i) + v_offset_bytes(); }
  int32_t position(int32_t row) const {
    return positions[static_cast<size_t>(block_ids[row / kBlockRows]) * kBlockRows +
                     static_cast<size_t>(row % kBlockRows)];
  }
};

}  // namespace kedge
