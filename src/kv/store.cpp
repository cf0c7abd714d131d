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

int64_t block_bytes_of(const StoreShape& shape, RowTypes type) {
  return static_cast<int64_t>(block_layout(shape.head_dim, type).bytes) + metadata_bytes(shape) + kBookBytes;
}

// A row that was just written: its position, and nothing noted of it.
void start_row(BlockPool& pool, uint32_t block, int slot, int32_t position) {
  pool.positions(block)[slot] = position;
  for (int note = 0; note < pool.n_notes(); ++note)
    pool.notes(block, note)[slot] = 0;
  pool.flags(block)[slot] = 0;
}

}  // namespace

int64_t block_bytes_total(const StoreShape& shape) { return block_bytes_of(shape, shape.type); }
int64_t tail_block_bytes(const StoreShape& shape) { return block_bytes_of(shape, RowType::f16); }

int64_t tail_bytes(const StoreShape& shape, int64_t n_append) {
  if (!shape.type.quantised())
    return 0;
  // A settled tail has less than a block beyond the window; one layer takes n_append more, or each a row of decoding.
  const int64_t settled = int64_t{shape.n_layers} * (shape.f16_window / kBlockRows + 1);
  return (settled + blocks_of(n_append)) * shape.n_kv_heads * tail_block_bytes(shape);
}

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

std::span<HeadTable> Store::Impl::layers(SequenceId seq, int layer_begin, int layer_end) {
  check(layer_begin >= 0 && layer_begin <= layer_end && layer_end <= shape.n_layers, "layers are in range");
  const auto n = static_cast<size_t>(shape.n_kv_heads);
  return std::span(sequence(seq).heads)
      .subspan(static_cast<size_t>(layer_begin) * n, static_cast<size_t>(layer_end - layer_begin) * n);
}

uint32_t Store::Impl::take_block(RowPool& from, uint32_t after, int64_t n_run, bool zero) {
  const uint32_t block = from.pool.take(after, n_run, zero);
  peak_bytes = std::max(peak_bytes, live_bytes());
  check(peak_bytes <= budget_bytes, "blocks in use stay within the budget");
  return block;
}

bool Store::Impl::end_is_shared(const RowPool& in, const RowList& list) {
  return list.n_rows % kBlockRows != 0 && in.pool.refs(list.block_of(list.n_rows)) > 1;
}

void Store::Impl::unshare_end(RowPool& in, RowList& list) {
  const auto end = static_cast<size_t>(list.n_rows / kBlockRows);
  const uint32_t old = list.blocks[end];
  const uint32_t before = end > 0 ? list.blocks[end - 1] : kNoBlock;
  const uint32_t fresh = take_block(in, before, static_cast<int64_t>(end), false);
  // Rows of the other owner beyond ours come along as finite garbage; they are no rows of this head.
  std::memcpy(in.pool.payload(fresh), in.pool.payload(old), block_layout(shape.head_dim, in.type).bytes);
  for (int slot = 0; slot < list.n_rows % kBlockRows; ++slot)
    copy_notes(in.pool, fresh, slot, in.pool, old, slot);
  list.blocks[end] = fresh;
  in.pool.release(old);
}

int64_t Store::Impl::missing(const RowList& list, int64_t n_rows) {
  check(n_rows <= INT32_MAX, "rows of a head fit 32 bits");
  return std::max<int64_t>(0, blocks_of(n_rows) - static_cast<int64_t>(list.blocks.size()));
}

void Store::Impl::extend(RowPool& in, RowList& list, int64_t n_rows) {
  if (end_is_shared(in, list))
    unshare_end(in, list);
  int64_t left = missing(list, n_rows);
  const int64_t n_run = std::max(left, static_cast<int64_t>(list.blocks.size()));
  for (; left > 0; --left)
    list.blocks.push_back(take_block(in, list.blocks.empty() ? kNoBlock : list.blocks.back(), n_run, true));
}

void Store::Impl::shrink(RowPool& in, RowList& list, int32_t n_rows) {
  const auto n_blocks = static_cast<size_t>(blocks_of(n_rows));
  for (size_t i = n_blocks; i < list.blocks.size(); ++i)
    in.pool.release(list.blocks[i]);
  list.blocks.resize(n_blocks);
  if (list.blocks.capacity() > 4 * n_blocks + kBlockRows)
    list.blocks.shrink_to_fit();
  list.n_rows = n_rows;
}

void Store::Impl::shrink(HeadTable& table, int32_t n_rows) {
  shrink(tail, table.tail, std::max(0, n_rows - table.body.n_rows));
  shrink(body, table.body, std::min(n_rows, table.body.n_rows));
}

void Store::Impl::trim() {
  body.pool.trim();
  tail.pool.trim();
}

std::string Store::Impl::arithmetic(int64_t needed_blocks) const {
  const int64_t total = budget_bytes / body.block_bytes;
  return std::to_string(needed_blocks) + " blocks of " + std::to_string(body.block_bytes) + " bytes (" +
         std::to_string(needed_blocks * body.block_bytes) + " bytes) needed, " + std::to_string(n_free()) + " of " +
         std::to_string(total) + " blocks (" + std::to_string(n_free() * body.block_bytes) +
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
  check(shape.f16_window >= 0 && shape.f16_window % kBlockRows == 0, "the f16 window is whole blocks");
  const int64_t n_tail_blocks =
      shape.type.quantised() ? std::clamp<int64_t>(budget_bytes / tail_block_bytes(shape), 1, kMaxBlocks) : 1;
  Result<BlockPool> body = BlockPool::create(n_blocks, block_layout(shape.head_dim, shape.type).bytes, shape.n_notes);
  if (!body)
    return body.error();
  Result<BlockPool> tail =
      BlockPool::create(n_tail_blocks, block_layout(shape.head_dim, RowType::f16).bytes, shape.n_notes);
  if (!tail)
    return tail.error();
  std::unique_ptr<Store> store(new Store());
  store->impl_ = std::make_unique<Impl>(
      shape, budget_bytes,
      RowPool{.pool = std::move(*body), .type = shape.type, .block_bytes = block_bytes_total(shape)},
      RowPool{.pool = std::move(*tail), .type = RowType::f16, .block_bytes = tail_block_bytes(shape)});
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
  impl_->trim();
}

SequenceId Store::fork_sequence(SequenceId seq) {
  const SequenceId child = create_sequence();
  share_rows(child, seq);
  return child;
}

void Store::share_rows(SequenceId seq, SequenceId from_seq) {
  check(seq != from_seq, "rows are shared with another sequence");
  const std::vector<HeadTable>& from = impl_->sequence(from_seq).heads;
  std::vector<HeadTable>& to = impl_->sequence(seq).heads;
  const auto share = [](RowPool& in, const RowList& source, RowList& target) {
    target.n_rows = source.n_rows;
    target.blocks.assign(source.blocks.begin(), source.blocks.begin() + blocks_of(source.n_rows));
    for (const uint32_t block : target.blocks)
      in.pool.share(block);
  };
  for (size_t i = 0; i < from.size(); ++i) {
    impl_->shrink(to[i], 0);
    share(impl_->body, from[i].body, to[i].body);
    share(impl_->tail, from[i].tail, to[i].tail);
  }
  impl_->trim();
}

Status Store::reserve(SequenceId seq, int layer_begin, int layer_end, int n_rows) {
  Impl& impl = *impl_;
  const std::span<HeadTable> heads = impl.layers(seq, layer_begin, layer_end);
  check(n_rows >= 0, "reserve a number of rows");
  if (n_rows == 0)
    return {};
  int64_t needed = 0;
  for (const HeadTable& table : heads) {
    needed += Impl::missing(table.body, int64_t{table.n_rows()} + n_rows) +
              (Impl::end_is_shared(impl.body, table.body) ? 1 : 0);
  }
  if (!impl.fits(needed, 0)) {
    return Error{ErrorCode::budget_impossible, "KV store: room for " + std::to_string(n_rows) + " more rows in " +
                                                   std::to_string(heads.size()) + " heads: " + impl.arithmetic(needed)};
  }
  for (HeadTable& table : heads)
    impl.extend(impl.body, table.body, int64_t{table.n_rows()} + n_rows);
  return {};
}

void Store::release_reserved(SequenceId seq) {
  for (HeadTable& table : impl_->sequence(seq).heads)
    impl_->shrink(table, table.n_rows());
  impl_->trim();
}

void Store::append(SequenceId seq, int layer, int head, const AppendRows& rows) {
  HeadTable& table = impl_->table(seq, layer, head);
  RowPool& in = impl_->shape.type.quantised() ? impl_->tail : impl_->body;
  RowList& list = impl_->shape.type.quantised() ? table.tail : table.body;
  const size_t n = rows.positions.size();
  check(static_cast<size_t>(list.n_rows) + n <= list.blocks.size() * kBlockRows, "room was reserved for these rows");
  if (n == 0)
    return;
  check(!Impl::end_is_shared(in, list), "reserve has un-shared the last block");
  int32_t last = -1;
  if (table.n_rows() > 0) {
    const RowAt at = row_at(table, table.n_rows() - 1);
    last = impl_->pool_of(at).pool.positions(at.block)[at.slot];
  }
  for (size_t i = 0; i < n; ++i) {
    check(rows.positions[i] > last, "positions ascend");
    last = rows.positions[i];
    const int32_t row = list.n_rows + static_cast<int32_t>(i);
    const uint32_t block = list.block_of(row);
    const int slot = row % kBlockRows;
    write_row(in.pool.payload(block), slot, impl_->shape.head_dim, in.type,
              rows.k + static_cast<ptrdiff_t>(i) * rows.k_stride, rows.v + static_cast<ptrdiff_t>(i) * rows.v_stride);
    start_row(in.pool, block, slot, last);
    if (rows.note >= 0)
      in.pool.notes(block, rows.note)[slot] = rows.note_values[static_cast<ptrdiff_t>(i) * rows.note_stride];
  }
  list.n_rows += static_cast<int32_t>(n);
}

void Store::copy_rows(SequenceId seq, int layer, int head, const KvHeadView& from) {
  HeadTable& table = impl_->table(seq, layer, head);
  check(table.n_rows() == 0, "rows are copied into a head that has none");
  check(from.head_dim == impl_->shape.head_dim && from.type == impl_->shape.type, "copied rows are of the same kind");
  const auto copy = [](RowPool& in, RowList& list, const KvHeadView& part) {
    check(static_cast<size_t>(part.n_blocks()) <= list.blocks.size(), "room was reserved for these rows");
    for (int32_t i = 0; i < part.n_blocks(); ++i) {
      const uint32_t block = list.blocks[static_cast<size_t>(i)];
      std::memcpy(in.pool.payload(block), part.k_block(i), part.block_bytes());
      for (int slot = 0; slot < std::min(kBlockRows, part.n_rows - i * kBlockRows); ++slot) {
        start_row(in.pool, block, slot, part.position(i * kBlockRows + slot));
      }
    }
    list.n_rows = part.n_rows;
  };
  copy(impl_->body, table.body, from.body());
  copy(impl_->tail, table.tail, from.tail());
}

KvHeadView Store::view(SequenceId seq, int layer, int head) const {
  const HeadTable& table = impl_->table(seq, layer, head);
  return {.blocks = impl_->body.pool.payload_base(),
          .positions = impl_->body.pool.positions_base(),
          .block_ids = table.body.blocks.data(),
          .n_rows = table.n_rows(),
          .head_dim = impl_->shape.head_dim,
          .type = impl_->shape.type,
          .tail_blocks = impl_->tail.pool.payload_base(),
          .tail_positions = impl_->tail.pool.positions_base(),
          .tail_ids = table.tail.blocks.data(),
          .n_tail = table.tail.n_rows};
}

int32_t Store::n_rows(SequenceId seq, int layer, int head) const { return impl_->table(seq, layer, head).n_rows(); }

int64_t Store::n_rows_total(SequenceId seq) const {
  int64_t total = 0;
  for (const HeadTable& table : impl_->sequence(seq).heads)
    total += table.n_rows();
  return total;
}

void Store::set_notes(SequenceId seq, int layer, int head, int note, std::span<const float> values) {
  const HeadTable& table = impl_->table(seq, layer, head);
  check(values.size() == static_cast<size_t>(table.n_rows()), "one note per row");
  check(note >= 0 && note < impl_->shape.n_notes, "the note's column exists");
  for_row_runs(table, [&](const RowRun& run) {
    std::copy_n(values.data() + run.row, run.n, impl_->pool_of(run).pool.notes(run.block, note));
  });
}

std::vector<float> Store::notes(SequenceId seq, int layer, int head, int note) const {
  const HeadTable& table = impl_->table(seq, layer, head);
  check(note >= 0 && note < impl_->shape.n_notes, "the note's column exists");
  std::vector<float> values;
  values.reserve(static_cast<size_t>(table.n_rows()));
  for_row_runs(table, [&](const RowRun& run) {
    const float* at = impl_->pool_of(run).pool.notes(run.block, note);
    values.insert(values.end(), at, at + run.n);
  });
  return values;
}

float Store::score(SequenceId seq, int layer, int head, int32_t row) const {
  const HeadTable& table = impl_->table(seq, layer, head);
  check(row >= 0 && row < table.n_rows(), "the row is in the live range");
  const RowAt at = row_at(table, row);
  return impl_->pool_of(at).pool.notes(at.block, kScoreNote)[at.slot];
}

void Store::set_flags(SequenceId seq, int layer, int head, std::span<const uint8_t> flags) {
  const HeadTable& table = impl_->table(seq, layer, head);
  check(flags.size() == static_cast<size_t>(table.n_rows()), "one flags byte per row");
  for_row_runs(table, [&](const RowRun& run) {
    std::copy_n(flags.data() + run.row, run.n, impl_->pool_of(run).pool.flags(run.block));
  });
}

uint8_t Store::flags(SequenceId seq, int layer, int head, int32_t row) const {
  const HeadTable& table = impl_->table(seq, layer, head);
  check(row >= 0 && row < table.n_rows(), "the row is in the live range");
  const RowAt at = row_at(table, row);
  return impl_->pool_of(at).pool.flags(at.block)[at.slot];
}

void Store::truncate(SequenceId seq, int32_t n_tokens) {
  for (HeadTable& table : impl_->sequence(seq).heads) {
    // Positions ascend: the first row at or beyond n_tokens, by halving.
    int32_t low = 0;
    int32_t high = table.n_rows();
    while (low < high) {
      const int32_t middle = low + (high - low) / 2;
      const RowAt at = row_at(table, middle);
      if (impl_->pool_of(at).pool.positions(at.block)[at.slot] < n_tokens)
        low = middle + 1;
      else
        high = middle;
    }
    impl_->shrink(table, low);
  }
  impl_->trim();
}

const StoreShape& Store::shape() const { return impl_->shape; }

}  // namespace kedge::kv
