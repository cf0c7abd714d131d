// Quantised rows: in by way of the f16 tail, into the body when they have left the window.
//
//   body (q4):  0 1 2 .. 95        tail (f16):  96 .. 127 | 128 .. 143       window 32, 48 rows in the tail
//   settle:     0 1 2 .. 95 96 .. 111           112 .. 143                   its first block moves: 32 rows stay
//
// A row is quantised once, from its f16 values, whatever else is stored: the result depends on nothing but the row.
#include <atomic>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "kv/store_impl.h"

namespace kedge::kv {

Status Store::open_tail(SequenceId seq, int layer_begin, int layer_end, int n_rows) {
  Impl& impl = *impl_;
  const std::span<HeadTable> heads = impl.layers(seq, layer_begin, layer_end);
  check(n_rows >= 0, "room for a number of rows");
  if (!impl.shape.type.quantised() || n_rows == 0)
    return {};
  int64_t needed = 0;
  for (const HeadTable& table : heads) {
    needed += Impl::missing(table.tail, int64_t{table.tail.n_rows} + n_rows) +
              (Impl::end_is_shared(impl.tail, table.tail) ? 1 : 0);
  }
  if (!impl.fits(0, needed)) {
    return Error{ErrorCode::budget_impossible,
                 "KV store: room for " + std::to_string(n_rows) + " more f16 rows in " + std::to_string(heads.size()) +
                     " heads: " + std::to_string(needed * impl.tail.block_bytes) + " bytes needed, " +
                     std::to_string(impl.budget_bytes - impl.live_bytes()) + " free in a budget of " +
                     std::to_string(impl.budget_bytes) + " bytes"};
  }
  for (HeadTable& table : heads)
    impl.extend(impl.tail, table.tail, int64_t{table.tail.n_rows} + n_rows);
  return {};
}

void Store::Impl::settle_head(HeadTable& table, int32_t n_rows) {
  RowList& list = table.body;
  check(blocks_of(int64_t{list.n_rows} + n_rows) <= static_cast<int64_t>(list.blocks.size()),
        "room was reserved for rows that leave the window");
  check(!end_is_shared(body, list), "reserve has un-shared the last block");
  const KvHeadView from = {.blocks = tail.pool.payload_base(),
                           .positions = tail.pool.positions_base(),
                           .block_ids = table.tail.blocks.data(),
                           .n_rows = n_rows,
                           .head_dim = shape.head_dim,
                           .type = RowType::f16};
  const auto d = static_cast<size_t>(shape.head_dim);
  std::vector<float> k(kBlockRows * d);
  std::vector<float> v(kBlockRows * d);
  for (int32_t row = 0; row < n_rows; ++row) {
    const auto slot = static_cast<size_t>(row % kBlockRows);
    if (slot == 0)
      read_rows(from, row, row + kBlockRows, k.data(), v.data());
    const uint32_t target = list.block_of(list.n_rows);
    const int target_slot = list.n_rows % kBlockRows;
    write_row(body.pool.payload(target), target_slot, shape.head_dim, body.type, &k[slot * d], &v[slot * d]);
    copy_notes(body.pool, target, target_slot, tail.pool, table.tail.block_of(row), row % kBlockRows);
    ++list.n_rows;
  }
}

void Store::settle(SequenceId seq, int layer_begin, int layer_end, Executor& executor) {
  Impl& impl = *impl_;
  const std::span<HeadTable> heads = impl.layers(seq, layer_begin, layer_end);
  if (!impl.shape.type.quantised())
    return;
  const auto leaving = [&](const HeadTable& table) {
    return std::max(0, table.tail.n_rows - impl.shape.f16_window) / kBlockRows * kBlockRows;
  };
  if (std::ranges::none_of(heads, [&](const HeadTable& table) { return leaving(table) > 0; }))
    return;
  std::atomic<size_t> next{0};
  executor.run([&](int, int) {
    for (size_t i = next.fetch_add(1); i < heads.size(); i = next.fetch_add(1)) {
      if (leaving(heads[i]) > 0)
        impl.settle_head(heads[i], leaving(heads[i]));
    }
  });
  for (HeadTable& table : heads) {
    const int32_t n_rows = leaving(table);
    RowList& list = table.tail;
    for (int32_t i = 0; i < n_rows / kBlockRows; ++i)
      impl.tail.pool.release(list.blocks[static_cast<size_t>(i)]);
    list.blocks.erase(list.blocks.begin(), list.blocks.begin() + n_rows / kBlockRows);
    Impl::shrink(impl.tail, list, list.n_rows - n_rows);
  }
}

}  // namespace kedge::kv
