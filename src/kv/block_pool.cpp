#include "kv/block_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/huge_pages.h"

namespace kedge::kv {
namespace {

constexpr size_t kWordBlocks = 64;

// Bits that start an aligned run of free blocks of class c: 1, 4, 16 or 64 of them.
uint64_t extent_starts(uint64_t free, int extent_class) {
  switch (extent_class) {
    case 0:
      return free;
    case 1:
      free &= free >> 1;
      free &= free >> 2;
      return free & 0x1111'1111'1111'1111U;
    case 2:
      free &= free >> 1;
      free &= free >> 2;
      free &= free >> 4;
      free &= free >> 8;
      return free & 0x0001'0001'0001'0001U;
    default:
      return free == ~uint64_t{0} ? 1 : 0;
  }
}

}  // namespace

Result<BlockPool> BlockPool::create(int64_t n_blocks, size_t payload_bytes, int n_notes) {
  check(n_notes >= 1, "a row has at least its score");
  check(n_blocks > 0 && n_blocks < int64_t{kNoBlock}, "block count");
  check(payload_bytes > 0 && payload_bytes % 64 == 0, "blocks are 64-byte aligned");
  const auto n = static_cast<size_t>(n_blocks);
  const size_t n_words = (n + kWordBlocks - 1) / kWordBlocks;
  const std::array<size_t, 7> part_bytes = {
      n * payload_bytes, n * kBlockRows * 4, n * kBlockRows * 4 * n_notes, n * kBlockRows, n * 4,
      n_words * 8,       n_words * 8};
  std::array<size_t, 7> offset{};
  size_t total = 0;
  for (size_t i = 0; i < part_bytes.size(); ++i) {
    offset[i] = total;
    total += round_up(part_bytes[i], page_bytes());
  }
  // Huge pages where the host grants them: a head's run is then one or two TLB entries.
  const bool large = part_bytes[0] >= static_cast<size_t>(kTrimBytes);
  std::byte* mapping = map_huge_pages(total, large ? total : 0);
  if (mapping == nullptr) {
    return Error{ErrorCode::failed,
                 "KV store: cannot map " + std::to_string(total) + " bytes of address space: " + std::strerror(errno)};
  }
  BlockPool pool;
  pool.mapping_ = mapping;
  pool.mapping_bytes_ = total;
  pool.payload_bytes_ = payload_bytes;
  pool.payload_ = pool.mapping_ + offset[0];
  pool.positions_ = reinterpret_cast<int32_t*>(pool.mapping_ + offset[1]);
  pool.notes_ = reinterpret_cast<float*>(pool.mapping_ + offset[2]);
  pool.n_notes_ = static_cast<size_t>(n_notes);
  pool.flags_ = reinterpret_cast<uint8_t*>(pool.mapping_ + offset[3]);
  pool.refs_ = reinterpret_cast<uint32_t*>(pool.mapping_ + offset[4]);
  pool.used_ = reinterpret_cast<uint64_t*>(pool.mapping_ + offset[5]);
  pool.dirty_ = reinterpret_cast<uint64_t*>(pool.mapping_ + offset[6]);
  pool.n_blocks_ = n_blocks;
  for (auto& summary : pool.summary_)
    summary.assign((n_words + 63) / 64, 0);
  for (size_t word = n_words; word < pool.summary_[0].size() * 64; ++word) {
    for (auto& summary : pool.summary_)
      summary[word / 64] |= uint64_t{1} << (word % 64);
  }
  pool.update_summary(n_words - 1);  // the last word may lack blocks
  return pool;
}

BlockPool::~BlockPool() {
  if (mapping_ != nullptr)
    unmap_huge_pages(mapping_, mapping_bytes_);
}

BlockPool::BlockPool(BlockPool&& other) noexcept
    : mapping_(std::exchange(other.mapping_, nullptr)),
      mapping_bytes_(other.mapping_bytes_),
      payload_bytes_(other.payload_bytes_),
      payload_(other.payload_),
      positions_(other.positions_),
      notes_(other.notes_),
      n_notes_(other.n_notes_),
      flags_(other.flags_),
      refs_(other.refs_),
      used_(other.used_),
      dirty_(other.dirty_),
      n_blocks_(other.n_blocks_),
      n_live_(other.n_live_),
      n_trimmed_(other.n_trimmed_),
      freed_bytes_(other.freed_bytes_),
      top_word_(other.top_word_),
      summary_(std::move(other.summary_)),
      first_hint_(other.first_hint_) {}

uint64_t BlockPool::free_bits(size_t word) const {
  const size_t left = static_cast<size_t>(n_blocks_) - word * kWordBlocks;
  const uint64_t exist = left >= kWordBlocks ? ~uint64_t{0} : (uint64_t{1} << left) - 1;
  return ~used_[word] & exist;
}

void BlockPool::update_summary(size_t word) {
  const uint64_t free = free_bits(word);
  const uint64_t bit = uint64_t{1} << (word % 64);
  for (int c = 0; c < kClasses; ++c) {
    uint64_t& summary = summary_[c][word / 64];
    if (extent_starts(free, c) != 0) {
      summary &= ~bit;
      first_hint_[c] = std::min(first_hint_[c], word / 64);
    } else {
      summary |= bit;
    }
  }
}

// First extent of the class, or kNoBlock. Small classes are cut from the end of a word: its start is where the head
// that owns the extent is growing.
uint32_t BlockPool::find_extent(int extent_class) const {
  const auto& summary = summary_[extent_class];
  for (size_t i = first_hint_[extent_class]; i < summary.size(); ++i) {
    if (summary[i] == ~uint64_t{0})
      continue;
    const size_t word = i * 64 + static_cast<size_t>(std::countr_one(summary[i]));
    const uint64_t starts = extent_starts(free_bits(word), extent_class);
    const int bit = extent_class >= 2 ? std::countr_zero(starts) : 63 - std::countl_zero(starts);
    return static_cast<uint32_t>(word * kWordBlocks + static_cast<size_t>(bit));
  }
  return kNoBlock;
}

uint32_t BlockPool::take(uint32_t after, int64_t n_run, bool zero) {
  check(n_free() > 0, "a free block was counted on");
  uint32_t block = kNoBlock;
  if (after != kNoBlock && int64_t{after} + 1 < n_blocks_ && !is_used(after + 1))
    block = after + 1;
  for (int c = n_run >= kLongRun ? 3 : 2; block == kNoBlock && c >= 0; --c) {
    block = find_extent(c);
    // Words before the one found have no such extent: remember it, so that a full pool is not searched from its start.
    if (block != kNoBlock)
      first_hint_[c] = block / kWordBlocks / 64;
    if (block == kNoBlock)
      first_hint_[c] = summary_[c].size();
  }
  check(block != kNoBlock && refs_[block] == 0, "the bitmap finds a free block");
  const size_t word = block / kWordBlocks;
  const uint64_t bit = uint64_t{1} << (block % kWordBlocks);
  used_[word] |= bit;
  refs_[block] = 1;
  ++n_live_;
  top_word_ = std::max(top_word_, word + 1);
  update_summary(word);
  // A page that was never written is zero already: no memset, and no page fault for a block that is only reserved.
  if (zero && (dirty_[word] & bit) != 0)
    std::memset(payload(block), 0, payload_bytes_);
  dirty_[word] |= bit;
  return block;
}

void BlockPool::share(uint32_t block) {
  check(is_used(block) && refs_[block] < UINT32_MAX, "share a block in use");
  ++refs_[block];
}

void BlockPool::release(uint32_t block) {
  check(int64_t{block} < n_blocks_ && is_used(block) && refs_[block] > 0, "release a block in use");
  if (--refs_[block] > 0)
    return;
  used_[block / kWordBlocks] &= ~(uint64_t{1} << (block % kWordBlocks));
  --n_live_;
  freed_bytes_ += static_cast<int64_t>(payload_bytes_);
  update_summary(block / kWordBlocks);
}

void BlockPool::trim() {
  if (freed_bytes_ < kTrimBytes)
    return;
  freed_bytes_ = 0;
  // Whole words only: a run of 2 MiB that misses its ragged ends by 63 blocks is given back next time or never.
  size_t begin = 0;
  bool dirty = false;
  for (size_t word = 0; word <= top_word_; ++word) {
    if (word < top_word_ && used_[word] == 0) {
      dirty = dirty || dirty_[word] != 0;
      continue;
    }
    const size_t end_block = std::min(word * kWordBlocks, static_cast<size_t>(n_blocks_));
    const size_t bytes = (end_block - std::min(begin * kWordBlocks, end_block)) * payload_bytes_;
    if (dirty && bytes >= static_cast<size_t>(kTrimBytes)) {
      give_back(static_cast<uint32_t>(begin * kWordBlocks), static_cast<uint32_t>(end_block));
    }
    begin = word + 1;
    dirty = false;
  }
}

// Blocks [begin, end) are free. Pages wholly inside lose their memory and read as zero again.
void BlockPool::give_back(uint32_t begin, uint32_t end) {
  const size_t first = round_up(begin * payload_bytes_, page_bytes());
  const size_t last = end * payload_bytes_ / page_bytes() * page_bytes();
  if (madvise(payload_ + first, last - first, MADV_DONTNEED) != 0)
    return;
  for (uint32_t block = begin; block < end; ++block) {
    const bool inside = block * payload_bytes_ >= first && (block + size_t{1}) * payload_bytes_ <= last;
    const uint64_t bit = uint64_t{1} << (block % kWordBlocks);
    if (inside && (dirty_[block / kWordBlocks] & bit) != 0)
      ++n_trimmed_;
    if (inside)
      dirty_[block / kWordBlocks] &= ~bit;
  }
}

std::string BlockPool::check_invariants() const {
  int64_t live = 0;
  const size_t n_words = (static_cast<size_t>(n_blocks_) + kWordBlocks - 1) / kWordBlocks;
  for (int64_t b = 0; b < n_blocks_; ++b) {
    const auto block = static_cast<uint32_t>(b);
    if (is_used(block) != (refs_[block] > 0))
      return "block " + std::to_string(b) + ": bitmap and owners disagree";
    if (is_used(block))
      ++live;
  }
  if (live != n_live_)
    return "blocks in use: " + std::to_string(live) + ", counted " + std::to_string(n_live_);
  for (size_t word = 0; word < n_words; ++word) {
    if (word >= top_word_ && used_[word] != 0)
      return "word " + std::to_string(word) + " is used beyond the top";
    for (int c = 0; c < kClasses; ++c) {
      const bool none = (summary_[c][word / 64] >> (word % 64) & 1) != 0;
      if (none != (extent_starts(free_bits(word), c) == 0)) {
        return "word " + std::to_string(word) + ": summary of class " + std::to_string(c) + " is wrong";
      }
      if (!none && word / 64 < first_hint_[c])
        return "class " + std::to_string(c) + ": hint is beyond a free extent";
    }
  }
  return "";
}

}  // namespace kedge::kv
