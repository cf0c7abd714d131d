#include "kv/store.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "kernels/attention.h"
#include "kv/store_impl.h"

namespace kedge::kv {
namespace {

constexpr int64_t kBookBytes = 4 + 2 * 4 + 1;
constexpr int64_t kMaxBlocks = int64_t{1} << 31;
constexpr int kMaxHeadDim = 256;

int64_t metadata_bytes(const StoreShape& shape) {
  return kBlockRows * (int64_t{sizeof(int32_t)} + shape.n_notes * int64_t{sizeof(float)} + int64_t{sizeof(uint8_t)});
}

int64_t payload_bytes(const StoreShape& shape) { return int64_t{shape.head_dim} * kBlockRows * kRowTypeBytes * 2; }

}  // namespace

int64_t block_bytes_total(const StoreShape& shape) { return payload_bytes(shape) + metadata_bytes(shape) + kBookBytes; }

int64_t bytes_for_rows(const StoreShape& shape, int64_t n_rows, int64_t n_heads) {
  return blocks_of(n_rows) * n_heads * block_bytes_total(shape);
}

Sequence& Store::Impl::sequence(SequenceId seq) {
  const auto it = sequences.find(seq);
  check(it != sequences.end(), "the sequence exists");
  return it->second;
}

HeadTable& Store::Impl::table(SequenceId seq, int layer, int head) {
  check(layer >= 0 && layer < shape.n_layers && head >= 0 && head < shape.n_kv_heads, "layer and head are in range");
  return sequence(seq)
      .heads[static_cast<size_t>(layer) * static_cast<size_t>(shape.n_kv_heads) + static_cast<size_t>(head)];
}

uint32_t Store::Impl::take_block(uint32_t after, int64_t n_run, bool zero) {
  const uint32_t block = pool.take(after, n_run, zero);
  peak_bytes = std::max(peak_bytes, pool.n_live() * block_bytes);
  check(peak_bytes <= budget_bytes, "blocks in use stay within the budget");
  return block;
}

bool Store::Impl::tail_is_shared(const HeadTable& table) const {
  return table.n_rows % kBlockRows != 0 && pool.refs(table.block_of(table.n_rows)) > 1;
}

void Store::Impl::unshare_tail(HeadTable& table) {
  const auto tail = static_cast<size_t>(table.n_rows / kBlockRows);
  const auto n_slots = static_cast<size_t>(table.n_rows % kBlockRows);
  const uint32_t old = table.blocks[tail];
  const uint32_t before = tail > 0 ? table.blocks[tail - 1] : kNoBlock;
  const uint32_t fresh = take_block(before, static_cast<int64_t>(tail), false);
  // Rows of the other owner beyond n_slots come along as finite garbage; they are no rows of this head.
  std::memcpy(pool.payload(fresh), pool.payload(old), static_cast<size_t>(payload_bytes(shape)));
  std::copy_n(pool.positions(old), n_slots, pool.positions(fresh));
  for (int note = 0; note < pool.n_notes(); ++note)
    std::copy_n(pool.notes(old, note), n_slots, pool.notes(fresh, note));
  std::copy_n(pool.flags(old), n_slots, pool.flags(fresh));
  table.blocks[tail] = fresh;
  pool.release(old);
}

void Store::Impl::shrink(HeadTable& table, int32_t n_rows) {
  const auto n_blocks = static_cast<size_t>(blocks_of(n_rows));
  for (size_t i = n_blocks; i < table.blocks.size(); ++i)
    pool.release(table.blocks[i]);
  table.blocks.resize(n_blocks);
  if (table.blocks.capacity() > 4 * n_blocks + kBlockRows)
    table.blocks.shrink_to_fit();
  table.n_rows = n_rows;
}

std::string Store::Impl::arithmetic(int64_t needed_blocks) const {
  return std::to_string(needed_blocks) + " blocks of " + std::to_string(block_bytes) + " bytes (" +
         std::to_string(needed_blocks * block_bytes) + " bytes) needed, " + std::to_string(pool.n_free()) + " of " +
         std::to_string(pool.n_blocks()) + " blocks (" + std::to_string(pool.n_free() * block_bytes) +
         " bytes) free in a budget of " + std::to_string(budget_bytes) + " bytes";
}

Store::Store() = default;
Store::~Store() = default;

Result<std::unique_ptr<Store>> Store::create(const StoreShape& shape, int64_t budget_bytes) {
  if (shape.n_layers <= 0 || shape.n_kv_heads <= 0 || shape.head_dim <= 0 || shape.head_dim > kMaxHeadDim ||
      shape.head_dim % 16 != 0 || shape.n_notes < 1) {
    return Error{ErrorCode::failed, "KV store: " + std::to_string(shape.n_layers) + " layers, " +
                                        std::to_string(shape.n_kv_heads) + " kv heads, head_dim " +
                                        std::to_string(shape.head_dim) +
                                        "; layers and heads must be positive, head_dim a multiple of 16 up to 256"};
  }
  const int64_t n_blocks = std::min(budget_bytes / block_bytes_total(shape), kMaxBlocks);
  if (n_blocks <= 0) {
    return Error{ErrorCode::budget_impossible, "KV store: a budget of " + std::to_string(budget_bytes) +
                                                   " bytes cannot hold one block of " +
                                                   std::to_string(block_bytes_total(shape)) + " bytes"};
  }
  Result<BlockPool> pool = BlockPool::create(n_blocks, static_cast<size_t>(payload_bytes(shape)), shape.n_notes);
  if (!pool)
    return pool.error();
  std::unique_ptr<Store> store(new Store());
  store->impl_ = std::make_unique<Impl>(shape, budget_bytes, std::move(*pool));
  return store;
}

SequenceId Store::create_sequence() {
  const SequenceId seq = impl_->next_sequence++;
  impl_->sequences[seq].heads.resize(static_cast<size_t>(impl_->n_heads()));
  return seq;
}

void Store::drop_sequence(SequenceId seq) {
  for (HeadTable& table : impl_->sequence(seq).heads)
    impl_->shrink(table, 0);
  impl_->sequences.erase(seq);
  impl_->pool.trim();
}

SequenceId Store::fork_sequence(SequenceId seq) {
  const SequenceId child = create_sequence();
  const std::vector<HeadTable>& from = impl_->sequence(seq).heads;
  std::vector<HeadTable>& to = impl_->sequence(child).heads;
  for (size_t i = 0; i < from.size(); ++i) {
    to[i].n_rows = from[i].n_rows;
    to[i].blocks.assign(from[i].blocks.begin(), from[i].blocks.begin() + blocks_of(from[i].n_rows));
    for (const uint32_t block : to[i].blocks)
      impl_->pool.share(block);
  }
  return child;
}

Status Store::reserve(SequenceId seq, int layer_begin, int layer_end, int n_rows) {
  check(layer_begin >= 0 && layer_begin <= layer_end && layer_end <= impl_->shape.n_layers, "layers are in range");
  check(n_rows >= 0, "reserve a number of rows");
  if (n_rows == 0)
    return {};
  const int64_t n_kv_heads = impl_->shape.n_kv_heads;
  const std::span<HeadTable> heads = std::span(impl_->sequence(seq).heads)
                                         .subspan(static_cast<size_t>(layer_begin * n_kv_heads),
                                                  static_cast<size_t>((layer_end - layer_begin) * n_kv_heads));
  const auto missing = [n_rows](const HeadTable& table) {
    return std::max<int64_t>(0, blocks_of(int64_t{table.n_rows} + n_rows) - static_cast<int64_t>(table.blocks.size()));
  };
  int64_t needed = 0;
  for (const HeadTable& table : heads) {
    check(int64_t{table.n_rows} + n_rows <= INT32_MAX, "rows of a head fit 32 bits");
    needed += missing(table) + (impl_->tail_is_shared(table) ? 1 : 0);
  }
  if (needed > impl_->pool.n_free()) {
    return Error{ErrorCode::budget_impossible, "KV store: room for " + std::to_string(n_rows) + " more rows in " +
                                                   std::to_string(heads.size()) +
                                                   " heads: " + impl_->arithmetic(needed)};
  }
  for (HeadTable& table : heads) {
    if (impl_->tail_is_shared(table))
      impl_->unshare_tail(table);
    const int64_t n_run = std::max(missing(table), static_cast<int64_t>(table.blocks.size()));
    for (int64_t left = missing(table); left > 0; --left) {
      table.blocks.push_back(impl_->take_block(table.blocks.empty() ? kNoBlock : table.blocks.back(), n_run, true));
    }
  }
  return {};
}

void Store::release_reserved(SequenceId seq) {
  for (HeadTable& table : impl_->sequence(seq).heads)
    impl_->shrink(table, table.n_rows);
  impl_->pool.trim();
}

void Store::append(SequenceId seq, int layer, int head, const AppendRows& rows) {
  HeadTable& table = impl_->table(seq, layer, head);
  const size_t n = rows.positions.size();
  check(static_cast<size_t>(table.n_rows) + n <= table.blocks.size() * kBlockRows, "room was reserved for these rows");
  if (n == 0)
    return;
  check(!impl_->tail_is_shared(table), "reserve has un-shared the last block");
  BlockPool& pool = impl_->pool;
  int32_t last = -1;
  if (table.n_rows > 0)
    last = pool.positions(table.block_of(table.n_rows - 1))[(table.n_rows - 1) % kBlockRows];
  for (size_t i = 0; i < n; ++i) {
    check(rows.positions[i] > last, "positions ascend");
    last = rows.positions[i];
    const int32_t row = table.n_rows + static_cast<int32_t>(i);
    const uint32_t block = table.block_of(row);
    const int slot = row % kBlockRows;
    write_row(pool.payload(block), slot, impl_->shape.head_dim, impl_->shape.type,
              rows.k + static_cast<ptrdiff_t>(i) * rows.k_stride, rows.v + static_cast<ptrdiff_t>(i) * rows.v_stride);
    pool.positions(block)[slot] = last;
    for (int note = 0; note < pool.n_notes(); ++note)
      pool.notes(block, note)[slot] = 0;
    pool.flags(block)[slot] = 0;
  }
  table.n_rows += static_cast<int32_t>(n);
}

void Store::copy_rows(SequenceId seq, int layer, int head, const KvHeadView& from) {
  HeadTable& table = impl_->table(seq, layer, head);
  check(table.n_rows == 0, "rows are copied into a head that has none");
  check(from.head_dim == impl_->shape.head_dim && from.type == impl_->shape.type, "copied rows are of the same kind");
  check(static_cast<size_t>(from.n_blocks()) <= table.blocks.size(), "room was reserved for these rows");
  BlockPool& pool = impl_->pool;
  for (int32_t i = 0; i < from.n_blocks(); ++i) {
    const uint32_t block = table.blocks[static_cast<size_t>(i)];
    std::memcpy(pool.payload(block), from.k_block(i), from.block_bytes());
    for (int slot = 0; slot < std::min(kBlockRows, from.n_rows - i * kBlockRows); ++slot) {
      pool.positions(block)[slot] = from.position(i * kBlockRows + slot);
      for (int note = 0; note < pool.n_notes(); ++note)
        pool.notes(block, note)[slot] = 0;
      pool.flags(block)[slot] = 0;
    }
  }
  table.n_rows = from.n_rows;
}

KvHeadView Store::view(SequenceId seq, int layer, int head) const {
  const HeadTable& table = impl_->table(seq, layer, head);
  return {.blocks = impl_->pool.payload_base(),
          .positions = impl_->pool.positions_base(),
          .block_ids = table.blocks.data(),
          .n_rows = table.n_rows,
          .head_dim = impl_->shape.head_dim,
          .type = impl_->shape.type};
}

int32_t Store::n_rows(SequenceId seq, int layer, int head) const { return impl_->table(seq, layer, head).n_rows; }

int64_t Store::n_rows_total(SequenceId seq) const {
  int64_t total = 0;
  for (const HeadTable& table : impl_->sequence(seq).heads)
    total += table.n_rows;
  return total;
}

void Store::set_notes(SequenceId seq, int layer, int head, int note, std::span<const float> values) {
  const HeadTable& table = impl_->table(seq, layer, head);
  check(values.size() == static_cast<size_t>(table.n_rows), "one note per row");
  check(note >= 0 && note < impl_->shape.n_notes, "the note's column exists");
  for (int32_t row = 0; row < table.n_rows; ++row)
    impl_->pool.notes(table.block_of(row), note)[row % kBlockRows] = values[static_cast<size_t>(row)];
}

std::vector<float> Store::notes(SequenceId seq, int layer, int head, int note) const {
  const HeadTable& table = impl_->table(seq, layer, head);
  check(note >= 0 && note < impl_->shape.n_notes, "the note's column exists");
  std::vector<float> values(static_cast<size_t>(table.n_rows));
  for (int32_t row = 0; row < table.n_rows; ++row)
    values[static_cast<size_t>(row)] = impl_->pool.notes(table.block_of(row), note)[row % kBlockRows];
  return values;
}

float Store::score(SequenceId seq, int layer, int head, int32_t row) const {
  const HeadTable& table = impl_->table(seq, layer, head);
  check(row >= 0 && row < table.n_rows, "the row is in the live range");
  return impl_->pool.notes(table.block_of(row), kScoreNote)[row % kBlockRows];
}

void Store::set_flags(SequenceId seq, int layer, int head, std::span<const uint8_t> flags) {
  const HeadTable& table = impl_->table(seq, layer, head);
  check(flags.size() == static_cast<size_t>(table.n_rows), "one flags byte per row");
  for (int32_t row = 0; row < table.n_rows; ++row) {
    impl_->pool.flags(table.block_of(row))[row % kBlockRows] = flags[static_cast<size_t>(row)];
  }
}

uint8_t Store::flags(SequenceId seq, int layer, int head, int32_t row) const {
  const HeadTable& table = impl_->table(seq, layer, head);
  check(row >= 0 && row < table.n_rows, "the row is in the live range");
  return impl_->pool.flags(table.block_of(row))[row % kBlockRows];
}

void Store::truncate(SequenceId seq, int32_t n_tokens) {
  for (HeadTable& table : impl_->sequence(seq).heads) {
    // Positions ascend: the first row at or beyond n_tokens, by halving.
    int32_t low = 0;
    int32_t high = table.n_rows;
    while (low < high) {
      const int32_t middle = low + (high - low) / 2;
      const int32_t position = impl_->pool.positions(table.block_of(middle))[middle % kBlockRows];
      if (position < n_tokens)
        low = middle + 1;
      else
        high = middle;
    }
    impl_->shrink(table, low);
  }
  impl_->pool.trim();
}

const StoreShape& Store::shape() const { return impl_->shape; }

}  // namespace kedge::kv
