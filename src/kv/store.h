// The KV store: one arena of fixed-size blocks, ragged tables per (layer, kv head), a hard budget in bytes.
//
//   sequence -> layer -> kv head -> list of block ids -> block of kBlockRows rows (kernels/kv_view.h)
//
// Knows no policy and no model. `compact(KeepPlan)` is the only way rows leave other than truncate and drop.
// n_tokens (logical) is the caller's; the store counts rows.
//
// Threads: append() to different (layer, head) and view() may run at once; everything else needs the store to itself.
// A view is valid until its sequence is next reserved, compacted, truncated, forked or dropped.
// A reservation holds until its sequence is next compacted (the named heads), truncated or forked.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/executor.h"
#include "kedge/error.h"
#include "kernels/kv_view.h"

namespace kedge::kv {

using SequenceId = int32_t;

inline constexpr int kDefaultF16Window = 32;

struct StoreShape {
  int n_layers = 0;
  int n_kv_heads = 0;
  int head_dim = 0;
  RowTypes type = RowType::f16;
  // Quantised rows only: at least this many newest rows of a head are kept in f16 (its tail); a multiple of 16. They
  // are quantised by settle(), 16 at a time, when they have left the window.
  int f16_window = kDefaultF16Window;
  int n_notes = 1;  // f32 columns beside each row; column kScoreNote is what a scorer last said
  // Quantised rows only: bytes of the budget that the body leaves to the tails, so that open_tail() never fails where
  // the rest was planned without them; see tail_bytes().
  int64_t kept_for_tails = 0;
};
inline constexpr int kScoreNote = 0;

// Bytes of one block: payload, positions, flags and scores, and what the store keeps per block. Everything that the
// budget counts is blocks:
//   payload    block_layout(head_dim, type).bytes
//   metadata   kBlockRows * (position 4 + notes 4 each + flags 1)
//   books      reference count 4 + entry in the owner's table 8 (4, doubled for a growing vector) + bitmaps 1
// Not counted: some 32 bytes per (layer, head) of a sequence, and 4 bytes per block that a fork shares.
int64_t block_bytes_total(const StoreShape& shape);
int64_t tail_block_bytes(const StoreShape& shape);  // of a block of the f16 tail
// Most bytes that the tails of one sequence take beside blocks for all of its rows, if at most n_append rows are
// appended to one layer between two calls of settle(). 0 for 16-bit types.
int64_t tail_bytes(const StoreShape& shape, int64_t n_append);
// Blocks (bytes) that n_rows rows in each of n_heads heads take.
int64_t bytes_for_rows(const StoreShape& shape, int64_t n_rows, int64_t n_heads);

struct StoreStats {
  int64_t budget_bytes = 0;  // hard limit for everything below
  int64_t live_bytes = 0;    // blocks in use, each shared block once
  int64_t peak_bytes = 0;    // largest live_bytes ever; <= budget_bytes always (checked)
  int64_t live_rows = 0;     // rows held (shared rows once per block, not per sequence)
  int64_t evicted_rows = 0;  // rows removed by compact() since creation
  int64_t total_blocks = 0;  // of the body, as many as the budget holds
  int64_t free_blocks = 0;   // of the body, that can still be taken
  double fill = 0;           // share of the slots in live blocks that hold a row; 1 = no fragmentation (empty: 1)
  double sequential = 0;     // share of neighbouring blocks of a head that are neighbours in memory (none: 1)
};

// Rows of one head that stay, as indices into its current rows, strictly ascending.
struct KeepList {
  int layer = 0;
  int head = 0;
  std::vector<int32_t> rows;
};
struct KeepPlan {
  std::vector<KeepList> heads;  // heads that are not named keep everything; none twice
};

class Store {
 public:
  // Reserves address space for floor(budget_bytes / block_bytes_total) blocks (at least one per head is the planner's
  // business). Memory is touched when blocks are first used, so that a large budget costs nothing until filled.
  // Errors: failed (mmap), budget_impossible (not even one block).
  static Result<std::unique_ptr<Store>> create(const StoreShape& shape, int64_t budget_bytes);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  SequenceId create_sequence();
  void drop_sequence(SequenceId seq);                // frees its blocks (those not shared) at once
  SequenceId fork_sequence(SequenceId seq);          // shares all blocks; whoever writes first copies (copy-on-write)
  void share_rows(SequenceId seq, SequenceId from);  // seq becomes what a fork of `from` would be, under its own id

  // Makes room so that n_rows more rows can be appended to every head of layers [layer_begin, layer_end):
  // allocates blocks and un-shares a partly filled last block. All or nothing. Error: budget_impossible with the
  // arithmetic. Quantised rows: this is room for rows once they have left the window; open_tail() makes room to append.
  Status reserve(SequenceId seq, int layer_begin, int layer_end, int n_rows);

  // Quantised rows come in by way of the f16 tail: open_tail(), append(), attend, settle(). Both do nothing in stores
  // of 16-bit rows.
  // Room for n_rows more rows in the tails of these layers, as reserve() does it for the rest.
  Status open_tail(SequenceId seq, int layer_begin, int layer_end, int n_rows);
  // Quantises the rows of these layers that have left the window, whole blocks of 16. reserve() has made room for them
  // (checked). Heads are independent; `executor` spreads them.
  void settle(SequenceId seq, int layer_begin, int layer_end, Executor& executor);

  // Gives back reserved blocks that hold no row, in all layers.
  void release_reserved(SequenceId seq);

  // Appends rows to one head. k, v: f32, row i at k + i * k_stride (floats), head_dim floats; positions ascending and
  // greater than the head's last. Room must have been reserved (checked). Thread-safe for different (layer, head).
  struct AppendRows {
    const float* k;
    const float* v;
    long k_stride;
    long v_stride;
    std::span<const int32_t> positions;
    // One column of notes, if >= 0: row i gets note_values[i * note_stride]; the others are 0.
    int note = -1;
    const float* note_values = nullptr;
    long note_stride = 0;
  };
  void append(SequenceId seq, int layer, int head, const AppendRows& rows);

  // Fills a head that has no rows with all that `from` sees, bit for bit; notes and flags are 0 as in any new row.
  // `from` may be of another store with the same head_dim and row types (checked). Room must have been reserved
  // (checked), and opened for its tail.
  void copy_rows(SequenceId seq, int layer, int head, const KvHeadView& from);

  KvHeadView view(SequenceId seq, int layer, int head) const;
  int32_t n_rows(SequenceId seq, int layer, int head) const;
  int64_t n_rows_total(SequenceId seq) const;  // over all layers and heads

  // Per-row notes, same indexing as rows: StoreShape::n_notes columns of f32, and flags u8 (bit 0: protected).
  // All are 0 in a new row. They belong to the stored row: sequences that share its block share them, so that only the
  // owner of all of a head's blocks should write columns other than the score.
  void set_notes(SequenceId seq, int layer, int head, int note, std::span<const float> values);  // n_rows values
  std::vector<float> notes(SequenceId seq, int layer, int head, int note) const;                 // f32 [n_rows]
  void set_scores(SequenceId seq, int layer, int head, std::span<const float> scores) {
    set_notes(seq, layer, head, kScoreNote, scores);
  }
  float score(SequenceId seq, int layer, int head, int32_t row) const;
  void set_flags(SequenceId seq, int layer, int head, std::span<const uint8_t> flags);
  uint8_t flags(SequenceId seq, int layer, int head, int32_t row) const;

  // Keeps exactly the named rows, in order, bytes, positions, scores and flags unchanged; frees blocks at once,
  // reserved ones of the named heads too.
  // Never writes into a shared block (copies; the copy needs free blocks: error budget_impossible, nothing changed).
  // A plan naming a head twice, a bad index or rows out of order: error failed, nothing changed.
  // Heads are independent; `executor` spreads them.
  Status compact(SequenceId seq, const KeepPlan& plan, Executor& executor);

  // Removes all rows with position >= n_tokens from every head (rewind), and reserved blocks. Never copies. Rows that
  // were quantised meanwhile stay so: to come back to recent rows in f16, fork first and go on from the fork.
  void truncate(SequenceId seq, int32_t n_tokens);

  // One head's rows as bytes, exactly: positions, notes and payload, whatever blocks they are in. Appended to `out`.
  // They mean something to a store of the same head_dim and row types only.
  void export_rows(SequenceId seq, int layer, int head, std::vector<std::byte>& out) const;
  // Fills a head that has no rows with what export_rows() wrote, and reserves the room itself. Any bytes are safe.
  // Errors: failed (no rows of this shape: says what was found and what is allowed; positions must ascend and be below
  // n_tokens, values be finite), budget_impossible. Nothing has changed then.
  Status import_rows(SequenceId seq, int layer, int head, std::span<const std::byte> bytes, int64_t n_tokens);

  // Blocks of the body of one layer of a sequence.
  struct LayerBlocks {
    int64_t own = 0;      // no other sequence has them; reserved ones too
    int64_t shared = 0;   // some other sequence has them as well
    int64_t missing = 0;  // what reserve() would take for n_rows more: new ones, and copies of shared last ones
  };
  LayerBlocks layer_blocks(SequenceId seq, int layer, int n_rows = 0) const;

  // Bookkeeping of a sequence (no row data): positions per layer and head. For maps, tests and files.
  struct Snapshot {
    std::vector<std::vector<std::vector<int32_t>>> positions;  // [layer][head][row]
  };
  Snapshot snapshot(SequenceId seq) const;

  StoreStats stats() const;
  const StoreShape& shape() const;

  // Checks every invariant (blocks owned + free = total, reference counts, order of positions); for tests. Empty =
  // fine.
  std::string check_invariants() const;

 private:
  Store();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kedge::kv
