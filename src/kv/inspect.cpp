// What the store says about itself: snapshot, statistics, invariants.
#include <algorithm>
#include <string>
#include <unordered_map>
#include <vector>

#include "kv/store_impl.h"

namespace kedge::kv {
namespace {

int32_t rows_in_block(const HeadTable& table, size_t block_index) {
  return std::clamp(table.n_rows - static_cast<int32_t>(block_index) * kBlockRows, 0, kBlockRows);
}

// One head's own rules. Empty = fine.
std::string check_head(const HeadTable& table, BlockPool& pool) {
  if (table.n_rows < 0 || blocks_of(table.n_rows) > static_cast<int64_t>(table.blocks.size())) {
    return std::to_string(table.n_rows) + " rows in " + std::to_string(table.blocks.size()) + " blocks";
  }
  for (size_t i = 0; i < table.blocks.size(); ++i) {
    if (int64_t{table.blocks[i]} >= pool.n_blocks())
      return "block id " + std::to_string(table.blocks[i]);
    if (rows_in_block(table, i) == 0 && pool.refs(table.blocks[i]) != 1)
      return "a reserved block is shared";
  }
  int32_t last = -1;
  for (int32_t row = 0; row < table.n_rows; ++row) {
    const int32_t position = pool.positions(table.block_of(row))[row % kBlockRows];
    if (position <= last)
      return "row " + std::to_string(row) + ": position " + std::to_string(position) + " after " + std::to_string(last);
    last = position;
  }
  return "";
}

}  // namespace

Store::Snapshot Store::snapshot(SequenceId seq) const {
  Snapshot snapshot;
  snapshot.positions.resize(static_cast<size_t>(impl_->shape.n_layers));
  for (int layer = 0; layer < impl_->shape.n_layers; ++layer) {
    auto& heads = snapshot.positions[static_cast<size_t>(layer)];
    heads.resize(static_cast<size_t>(impl_->shape.n_kv_heads));
    for (int head = 0; head < impl_->shape.n_kv_heads; ++head) {
      const KvHeadView rows = view(seq, layer, head);
      auto& positions = heads[static_cast<size_t>(head)];
      positions.reserve(static_cast<size_t>(rows.n_rows));
      for (int32_t row = 0; row < rows.n_rows; ++row)
        positions.push_back(rows.position(row));
    }
  }
  return snapshot;
}

Store::LayerBlocks Store::layer_blocks(SequenceId seq, int layer) const {
  LayerBlocks out;
  for (int head = 0; head < impl_->shape.n_kv_heads; ++head) {
    const HeadTable& table = impl_->table(seq, layer, head);
    for (const uint32_t block : table.blocks)
      ++(impl_->pool.refs(block) == 1 ? out.own : out.shared);
    out.shared_tails += impl_->tail_is_shared(table) ? 1 : 0;
  }
  return out;
}

StoreStats Store::stats() const {
  const BlockPool& pool = impl_->pool;
  StoreStats stats{.budget_bytes = impl_->budget_bytes,
                   .live_bytes = pool.n_live() * impl_->block_bytes,
                   .peak_bytes = impl_->peak_bytes,
                   .evicted_rows = impl_->evicted_rows,
                   .total_blocks = pool.n_blocks(),
                   .free_blocks = pool.n_free()};
  int64_t n_pairs = 0;
  int64_t n_neighbours = 0;
  std::unordered_map<uint32_t, int32_t> shared_rows;  // owners may hold different numbers of a block's rows
  for (const auto& [seq, sequence] : impl_->sequences) {
    for (const HeadTable& table : sequence.heads) {
      for (size_t i = 0; i < table.blocks.size(); ++i) {
        const uint32_t block = table.blocks[i];
        if (pool.refs(block) == 1) {
          stats.live_rows += rows_in_block(table, i);
        } else {
          int32_t& rows = shared_rows[block];
          rows = std::max(rows, rows_in_block(table, i));
        }
        if (i == 0)
          continue;
        ++n_pairs;
        n_neighbours += block == table.blocks[i - 1] + 1 ? 1 : 0;
      }
    }
  }
  for (const auto& [block, rows] : shared_rows)
    stats.live_rows += rows;
  const auto live_slots = static_cast<double>(pool.n_live() * kBlockRows);
  stats.fill = live_slots > 0 ? static_cast<double>(stats.live_rows) / live_slots : 1;
  stats.sequential = n_pairs > 0 ? static_cast<double>(n_neighbours) / static_cast<double>(n_pairs) : 1;
  return stats;
}

std::string Store::check_invariants() const {
  BlockPool& pool = impl_->pool;
  std::string bad = pool.check_invariants();
  if (!bad.empty())
    return bad;
  std::vector<uint32_t> owners(static_cast<size_t>(pool.n_blocks()), 0);
  std::vector<SequenceId> seen_in(static_cast<size_t>(pool.n_blocks()), -1);
  for (const auto& [seq, sequence] : impl_->sequences) {
    for (size_t h = 0; h < sequence.heads.size(); ++h) {
      const std::string where = "sequence " + std::to_string(seq) + " head " + std::to_string(h) + ": ";
      bad = check_head(sequence.heads[h], pool);
      if (!bad.empty())
        return where + bad;
      for (const uint32_t block : sequence.heads[h].blocks) {
        if (seen_in[block] == seq)
          return where + "block " + std::to_string(block) + " twice in the sequence";
        seen_in[block] = seq;
        ++owners[block];
      }
    }
  }
  int64_t owned = 0;
  for (int64_t b = 0; b < pool.n_blocks(); ++b) {
    const auto block = static_cast<uint32_t>(b);
    if (owners[block] != pool.refs(block)) {
      return "block " + std::to_string(b) + ": " + std::to_string(owners[block]) + " owners, " +
             std::to_string(pool.refs(block)) + " counted";
    }
    owned += owners[block] > 0 ? 1 : 0;
  }
  if (owned + pool.n_free() != pool.n_blocks())
    return "blocks owned and free do not add up to all";
  const StoreStats now = stats();
  if (now.live_bytes != owned * impl_->block_bytes)
    return "live bytes are not those of the blocks owned";
  if (now.live_bytes > now.peak_bytes || now.peak_bytes > now.budget_bytes)
    return "live <= peak <= budget is broken";
  if (now.live_rows > owned * kBlockRows)
    return "more rows than the blocks hold";
  return "";
}

}  // namespace kedge::kv
