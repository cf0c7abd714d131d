// What store.cpp, compact.cpp and inspect.cpp share; nobody else includes it.
#pragma once

#include <algorithm>
#include <map>
#include <span>
#include <vector>

#include "base/check.h"
#include "kv/block_pool.h"
#include "kv/store.h"

namespace kedge::kv {

inline int64_t blocks_of(int64_t n_rows) { return (n_rows + kBlockRows - 1) / kBlockRows; }

// Blocks of one pool. Those at and beyond blocks_of(n_rows) are reserved: empty, and never shared.
struct RowList {
  std::vector<uint32_t> blocks;
  int32_t n_rows = 0;

  uint32_t block_of(int32_t row) const { return blocks[static_cast<size_t>(row / kBlockRows)]; }
};

// One (layer, kv head): rows of the body, then rows of the tail (stores of 16-bit rows have none).
struct HeadTable {
  RowList body;
  RowList tail;

  int32_t n_rows() const { return body.n_rows + tail.n_rows; }
};

// Where a row lies.
struct RowAt {
  bool in_tail;
  uint32_t block;
  int slot;
};
inline RowAt row_at(const HeadTable& table, int32_t row) {
  const bool in_tail = row >= table.body.n_rows;
  const RowList& list = in_tail ? table.tail : table.body;
  const int32_t i = in_tail ? row - table.body.n_rows : row;
  return {.in_tail = in_tail, .block = list.block_of(i), .slot = i % kBlockRows};
}

// Rows [row, row + n) that lie side by side in the first slots of one block.
struct RowRun {
  bool in_tail;
  uint32_t block;
  int32_t row;
  int32_t n;
};
template <typename Fn>
void for_row_runs(const HeadTable& table, const Fn& fn) {
  for (const RowList* list : {&table.body, &table.tail}) {
    const int32_t first = list == &table.tail ? table.body.n_rows : 0;
    for (int32_t row = 0; row < list->n_rows; row += kBlockRows)
      fn(RowRun{list == &table.tail, list->block_of(row), first + row, std::min(kBlockRows, list->n_rows - row)});
  }
}

struct Sequence {
  std::vector<HeadTable> heads;  // [n_layers][n_kv_heads]
};

// Blocks of one kind of row, and what they cost.
struct RowPool {
  BlockPool pool;
  RowTypes type;
  int64_t block_bytes = 0;  // what the budget counts for one block
};

struct Store::Impl {
  Impl(const StoreShape& shape_in, int64_t budget, RowPool body_in, RowPool tail_in)
      : shape(shape_in), budget_bytes(budget), body(std::move(body_in)), tail(std::move(tail_in)) {}

  StoreShape shape;
  int64_t budget_bytes;
  RowPool body;
  RowPool tail;  // f16; never used by a store of 16-bit rows. Both pools share the one budget.
  std::map<SequenceId, Sequence> sequences;
  SequenceId next_sequence = 0;  // never used twice: a stale id is found, not someone else's rows
  int64_t peak_bytes = 0;
  int64_t evicted_rows = 0;

  Sequence& sequence(SequenceId seq);
  HeadTable& table(SequenceId seq, int layer, int head);
  int64_t n_heads() const { return int64_t{shape.n_layers} * shape.n_kv_heads; }
  std::span<HeadTable> layers(SequenceId seq, int layer_begin, int layer_end);
  RowPool& pool_of(const RowAt& at) { return at.in_tail ? tail : body; }
  RowPool& pool_of(const RowRun& run) { return run.in_tail ? tail : body; }

  int64_t live_bytes() const { return body.pool.n_live() * body.block_bytes + tail.pool.n_live() * tail.block_bytes; }
  // Bytes for the body's blocks, if the tails take tail_blocks more.
  int64_t body_limit(int64_t tail_blocks) const {
    return budget_bytes - std::max((tail.pool.n_live() + tail_blocks) * tail.block_bytes, shape.kept_for_tails);
  }
  // Blocks of the body that can still be taken.
  int64_t n_free() const {
    return std::clamp<int64_t>(body_limit(0) / body.block_bytes - body.pool.n_live(), 0, body.pool.n_free());
  }
  bool fits(int64_t body_blocks, int64_t tail_blocks) const {
    return body_blocks <= body.pool.n_free() && tail_blocks <= tail.pool.n_free() &&
           (body.pool.n_live() + body_blocks) * body.block_bytes <= body_limit(tail_blocks);
  }

  // A block for the list, in its run if it can be; the budget is checked after every one.
  uint32_t take_block(RowPool& from, uint32_t after, int64_t n_run, bool zero);
  // The last block is partly filled and has another owner: appending must copy it first.
  static bool end_is_shared(const RowPool& in, const RowList& list);
  void unshare_end(RowPool& in, RowList& list);
  // Blocks that the list lacks to hold n_rows rows, and taking them.
  static int64_t missing(const RowList& list, int64_t n_rows);
  void extend(RowPool& in, RowList& list, int64_t n_rows);
  // Leaves the first n_rows rows and the blocks they need.
  static void shrink(RowPool& in, RowList& list, int32_t n_rows);
  void shrink(HeadTable& table, int32_t n_rows);
  void trim();
  // Moves the first n_rows rows of the tail (whole blocks) behind the body.
  void settle_head(HeadTable& table, int32_t n_rows);
  // "N blocks of B bytes needed, F of T free (budget ...)"
  std::string arithmetic(int64_t needed_blocks) const;
};

// Position, score and flags of a row, from pool to pool.
void copy_notes(BlockPool& to, uint32_t dst_block, int dst_slot, const BlockPool& from, uint32_t src_block,
                int src_slot);

}  // namespace kedge::kv
