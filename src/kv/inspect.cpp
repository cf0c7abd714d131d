// What the store says about itself: snapshot, statistics, invariants.
#include <algorithm>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kv/store_impl.h"

namespace kedge::kv {
namespace {

int32_t rows_in_block(const RowList& list, size_t block_index) {
  return std::clamp(list.n_rows - static_cast<int32_t>(block_index) * kBlockRows, 0, kBlockRows);
}

// The own rules of one head's body or tail; `last`: the position before it, then of its last row. Empty = fine.
std::string check_list(const RowList& list, const BlockPool& pool, int32_t& last) {
  if (list.n_rows < 0 || blocks_of(list.n_rows) > static_cast<int64_t>(list.blocks.size())) {
    return std::to_string(list.n_rows) + " rows in " + std::to_string(list.blocks.size()) + " blocks";
  }
  for (size_t i = 0; i < list.blocks.size(); ++i) {
    if (int64_t{list.blocks[i]} >= pool.n_blocks())
      return "block id " + std::to_string(list.blocks[i]);
    if (rows_in_block(list, i) == 0 && pool.refs(list.blocks[i]) != 1)
      return "a reserved block is shared";
  }
  for (int32_t row = 0; row < list.n_rows; ++row) {
    const int32_t position = pool.positions(list.block_of(row))[row % kBlockRows];
    if (position <= last)
      return "row " + std::to_string(row) + ": position " + std::to_string(position) + " after " + std::to_string(last);
    last = position;
  }
  return "";
}

// How rows lie in one pool, over all sequences.
struct Fill {
  int64_t live_rows = 0;
  int64_t n_pairs = 0;                                  // neighbouring blocks of a list
  int64_t n_neighbours = 0;                             // of these, neighbours in memory
  std::unordered_map<uint32_t, int32_t> shared_rows{};  // owners may hold different numbers of a block's rows

  void add(const RowList& list, const BlockPool& pool) {
    for (size_t i = 0; i < list.blocks.size(); ++i) {
      const uint32_t block = list.blocks[i];
      if (pool.refs(block) == 1) {
        live_rows += rows_in_block(list, i);
      } else {
        int32_t& rows = shared_rows[block];
        rows = std::max(rows, rows_in_block(list, i));
      }
      if (i == 0)
        continue;
      ++n_pairs;
      n_neighbours += block == list.blocks[i - 1] + 1 ? 1 : 0;
    }
  }
  int64_t rows() const {
    int64_t total = live_rows;
    for (const auto& [block, n] : shared_rows)
      total += n;
    return total;
  }
};

// Blocks of one pool against those that the sequences' lists name.
class Owners {
 public:
  explicit Owners(const BlockPool& pool) : pool_(pool), owners_(static_cast<size_t>(pool.n_blocks()), 0) {}

  // Empty = fine. A sequence names no block twice.
  std::string add(const RowList& list, SequenceId seq) {
    for (const uint32_t block : list.blocks) {
      if (!seen_.insert({seq, block}).second)
        return "block " + std::to_string(block) + " twice in the sequence";
      ++owners_[block];
    }
    return "";
  }
  std::string check_counts() const {
    int64_t owned = 0;
    for (int64_t b = 0; b < pool_.n_blocks(); ++b) {
      const auto block = static_cast<uint32_t>(b);
      if (owners_[block] != pool_.refs(block)) {
        return "block " + std::to_string(b) + ": " + std::to_string(owners_[block]) + " owners, " +
               std::to_string(pool_.refs(block)) + " counted";
      }
      owned += owners_[block] > 0 ? 1 : 0;
    }
    return owned + pool_.n_free() == pool_.n_blocks() ? "" : "blocks owned and free do not add up to all";
  }

 private:
  const BlockPool& pool_;
  std::vector<uint32_t> owners_;
  std::set<std::pair<SequenceId, uint32_t>> seen_;
};

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

StoreStats Store::stats() const {
  const Impl& impl = *impl_;
  StoreStats stats{.budget_bytes = impl.budget_bytes,
                   .live_bytes = impl.live_bytes(),
                   .peak_bytes = impl.peak_bytes,
                   .evicted_rows = impl.evicted_rows,
                   .total_blocks = impl.body.pool.n_blocks(),
                   .free_blocks = impl.n_free()};
  Fill body;
  Fill tail;
  for (const auto& [seq, sequence] : impl.sequences) {
    for (const HeadTable& table : sequence.heads) {
      body.add(table.body, impl.body.pool);
      tail.add(table.tail, impl.tail.pool);
    }
  }
  stats.live_rows = body.rows() + tail.rows();
  const auto live_slots = static_cast<double>((impl.body.pool.n_live() + impl.tail.pool.n_live()) * kBlockRows);
  stats.fill = live_slots > 0 ? static_cast<double>(stats.live_rows) / live_slots : 1;
  const int64_t n_pairs = body.n_pairs + tail.n_pairs;
  const int64_t n_neighbours = body.n_neighbours + tail.n_neighbours;
  stats.sequential = n_pairs > 0 ? static_cast<double>(n_neighbours) / static_cast<double>(n_pairs) : 1;
  return stats;
}

std::string Store::check_invariants() const {
  const Impl& impl = *impl_;
  std::string bad = impl.body.pool.check_invariants() + impl.tail.pool.check_invariants();
  if (!bad.empty())
    return bad;
  Owners body(impl.body.pool);
  Owners tail(impl.tail.pool);
  for (const auto& [seq, sequence] : impl.sequences) {
    for (size_t h = 0; h < sequence.heads.size(); ++h) {
      const std::string where = "sequence " + std::to_string(seq) + " head " + std::to_string(h) + ": ";
      const HeadTable& table = sequence.heads[h];
      int32_t last = -1;
      bad = check_list(table.body, impl.body.pool, last);
      bad += check_list(table.tail, impl.tail.pool, last);
      bad += body.add(table.body, seq);
      bad += tail.add(table.tail, seq);
      if (!bad.empty())
        return where + bad;
      if (!impl.shape.type.quantised() && !table.tail.blocks.empty())
        return where + "16-bit rows have no tail";
    }
  }
  bad = body.check_counts() + tail.check_counts();
  if (!bad.empty())
    return bad;
  const StoreStats now = stats();
  if (now.live_bytes > now.peak_bytes || now.peak_bytes > now.budget_bytes)
    return "live <= peak <= budget is broken";
  if (now.live_rows > (impl.body.pool.n_live() + impl.tail.pool.n_live()) * kBlockRows)
    return "more rows than the blocks hold";
  return "";
}

}  // namespace kedge::kv
