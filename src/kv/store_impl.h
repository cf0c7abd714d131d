// What store.cpp, compact.cpp and inspect.cpp share; nobody else includes it.
#pragma once

#include <map>
#include <vector>

#include "base/check.h"
#include "kv/block_pool.h"
#include "kv/store.h"

namespace kedge::kv {

inline int64_t blocks_of(int64_t n_rows) { return (n_rows + kBlockRows - 1) / kBlockRows; }

// One (layer, kv head). Blocks at and beyond blocks_of(n_rows) are reserved: empty, and never shared.
struct HeadTable {
  std::vector<uint32_t> blocks;
  int32_t n_rows = 0;

  uint32_t block_of(int32_t row) const { return blocks[static_cast<size_t>(row / kBlockRows)]; }
};

struct Sequence {
  std::vector<HeadTable> heads;  // [n_layers][n_kv_heads]
};

struct Store::Impl {
  Impl(const StoreShape& shape_in, int64_t budget, BlockPool pool_in)
      : shape(shape_in), budget_bytes(budget), block_bytes(block_bytes_total(shape_in)), pool(std::move(pool_in)) {}

  StoreShape shape;
  int64_t budget_bytes;
  int64_t block_bytes;  // what the budget counts for one block
  BlockPool pool;
  std::map<SequenceId, Sequence> sequences;
  SequenceId next_sequence = 0;  // never used twice: a stale id is found, not someone else's rows
  int64_t peak_bytes = 0;
  int64_t evicted_rows = 0;

  Sequence& sequence(SequenceId seq);
  HeadTable& table(SequenceId seq, int layer, int head);
  int64_t n_heads() const { return int64_t{shape.n_layers} * shape.n_kv_heads; }

  // A block for the head, in its run if it can be; the budget is checked after every one.
  uint32_t take_block(uint32_t after, int64_t n_run, bool zero);
  // The last block is partly filled and has another owner: appending must copy it first.
  bool tail_is_shared(const HeadTable& table) const;
  void unshare_tail(HeadTable& table);
  // Leaves the first n_rows rows and the blocks they need.
  void shrink(HeadTable& table, int32_t n_rows);
  // Copies a row with its position, score and flags.
  void move_row(uint32_t dst_block, int dst_slot, uint32_t src_block, int src_slot);
  // "N blocks of B bytes needed, F of T free (budget ...)"
  std::string arithmetic(int64_t needed_blocks) const;
};

}  // namespace kedge::kv
