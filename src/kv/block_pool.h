// Fixed-size blocks from one lazily touched mapping, with reference counts; keeps the blocks of one head in runs.
//
//   mapping: | payload [n_blocks][block bytes] | positions i32 [n_blocks][16] | notes f32 [n_blocks][n_notes][16]
//            | flags u8 [n_blocks][16] | refs u32 [n_blocks] | used u64 bits | dirty u64 bits |
//
// Memory is touched when a block is first handed out; a 1 TiB pool costs address space only.
// Not thread-safe, except that payload and metadata of different blocks may be written at once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kedge/error.h"
#include "kernels/kv_view.h"

namespace kedge::kv {

inline constexpr uint32_t kNoBlock = UINT32_MAX;

class BlockPool {
 public:
  // Error failed: the mapping was refused.
  static Result<BlockPool> create(int64_t n_blocks, size_t payload_bytes, int n_notes = 1);
  ~BlockPool();
  BlockPool(BlockPool&& other) noexcept;
  BlockPool& operator=(BlockPool&&) = delete;

  // Takes a free block (one must be: checked), reference count 1. `after` is the head's block before it (or kNoBlock):
  // its neighbour if that is free, else the start of an empty aligned extent, of 64 blocks where `n_run`, the number of
  // blocks that the head has or will have at once, says that it is long, else of 16, 4, 1. zero: payload set to 0.
  uint32_t take(uint32_t after, int64_t n_run, bool zero);
  void share(uint32_t block);    // one more owner
  void release(uint32_t block);  // one owner less; the last one frees it

  // Gives free runs of at least kTrimBytes back to the system, if that much was freed since the last time.
  void trim();

  std::byte* payload(uint32_t block) { return payload_ + block * payload_bytes_; }
  const std::byte* payload(uint32_t block) const { return payload_ + block * payload_bytes_; }
  const std::byte* payload_base() const { return payload_; }
  const int32_t* positions_base() const { return positions_; }
  int32_t* positions(uint32_t block) { return positions_ + size_t{block} * kBlockRows; }  // i32 [kBlockRows]
  // Column `note` of a block: f32 [kBlockRows]; the columns of a block are neighbours.
  float* notes(uint32_t block, int note) { return notes_ + (size_t{block} * n_notes_ + note) * kBlockRows; }
  const float* notes(uint32_t block, int note) const { return notes_ + (size_t{block} * n_notes_ + note) * kBlockRows; }
  int n_notes() const { return static_cast<int>(n_notes_); }
  uint8_t* flags(uint32_t block) { return flags_ + size_t{block} * kBlockRows; }  // u8 [kBlockRows]
  const int32_t* positions(uint32_t block) const { return positions_ + size_t{block} * kBlockRows; }
  const uint8_t* flags(uint32_t block) const { return flags_ + size_t{block} * kBlockRows; }

  uint32_t refs(uint32_t block) const { return refs_[block]; }
  int64_t n_blocks() const { return n_blocks_; }
  int64_t n_live() const { return n_live_; }
  int64_t n_free() const { return n_blocks_ - n_live_; }
  int64_t n_trimmed() const { return n_trimmed_; }  // blocks given back to the system since creation

  // Bitmaps, summaries, counters and reference counts agree. Empty = fine.
  std::string check_invariants() const;

  static constexpr int64_t kTrimBytes = 2 << 20;
  static constexpr int64_t kLongRun = 64;  // blocks: heads from here on get extents of 64

 private:
  BlockPool() = default;
  bool is_used(uint32_t block) const { return (used_[block / 64] >> (block % 64) & 1) != 0; }
  uint64_t free_bits(size_t word) const;
  uint32_t find_extent(int extent_class) const;
  void update_summary(size_t word);
  void give_back(uint32_t begin, uint32_t end);

  std::byte* mapping_ = nullptr;
  size_t mapping_bytes_ = 0;
  size_t payload_bytes_ = 0;  // of one block
  std::byte* payload_ = nullptr;
  int32_t* positions_ = nullptr;
  float* notes_ = nullptr;
  size_t n_notes_ = 1;
  uint8_t* flags_ = nullptr;
  uint32_t* refs_ = nullptr;
  uint64_t* used_ = nullptr;   // bit per block: taken
  uint64_t* dirty_ = nullptr;  // bit per block: payload written since it was last known to be zero
  int64_t n_blocks_ = 0;
  int64_t n_live_ = 0;
  int64_t n_trimmed_ = 0;
  int64_t freed_bytes_ = 0;  // since the last trim
  size_t top_word_ = 0;      // no word at or beyond it ever had a used bit

  // summary_[c], bit per word of used_: the word has no empty aligned extent of class c (1, 4, 16, 64 blocks).
  static constexpr int kClasses = 4;
  std::array<std::vector<uint64_t>, kClasses> summary_;
  std::array<size_t, kClasses> first_hint_{};  // no summary word before it has a clear bit
};

}  // namespace kedge::kv
