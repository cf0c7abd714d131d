// compact(): the one way rows leave a head other than truncate and drop.
//
//   rows:  0 1 2 3 | 4 5 6 7 | 8 9      keep 0 1 2 5 8 (blocks of 4 drawn)
//          = = =     .   ^     ^        row 3 of the result is source 5, row 4 is source 8: the target is never beyond
//   after: 0 1 2 5 | 8                  its source, so a head is compacted in place in one ascending pass
//
// Rows before the first removed one stay where they are. A block with another owner is never written: the rows that
// would move within or into it go to a fresh block, and it loses this owner.
#include <algorithm>
#include <array>
#include <atomic>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kernels/attention.h"
#include "kv/store_impl.h"

namespace kedge::kv {
namespace {

// The body or the tail of one head.
struct Job {
  RowPool* in = nullptr;
  RowList* list = nullptr;
  std::vector<int32_t> rows{};      // kept, as indices into the list
  int32_t n_same = 0;               // rows [0, n_same) stay where they are
  std::vector<uint32_t> targets{};  // block i of the result, for i >= first_block()

  int32_t n_kept() const { return static_cast<int32_t>(rows.size()); }
  size_t first_block() const { return static_cast<size_t>(n_same / kBlockRows); }
  // A pure cut at the end moves nothing: then no block is a target.
  size_t end_block() const { return n_same == n_kept() ? first_block() : static_cast<size_t>(blocks_of(n_kept())); }
};

// Of the kept rows of a head, those in [first, first + list.n_rows), which are the list's.
Job make_job(RowPool& in, RowList& list, std::span<const int32_t> kept, int32_t first) {
  Job job{.in = &in, .list = &list};
  for (const int32_t row : kept) {
    if (row >= first && row - first < list.n_rows)
      job.rows.push_back(row - first);
  }
  while (job.n_same < job.n_kept() && job.rows[static_cast<size_t>(job.n_same)] == job.n_same)
    ++job.n_same;
  return job;
}

int64_t count_shared_targets(const Job& job) {
  int64_t n_shared = 0;
  for (size_t i = job.first_block(); i < job.end_block(); ++i)
    n_shared += job.in->pool.refs(job.list->blocks[i]) > 1 ? 1 : 0;
  return n_shared;
}

std::string name_of(const KeepList& keep) {
  return "KV store: keep plan, layer " + std::to_string(keep.layer) + " head " + std::to_string(keep.head) + ": ";
}

// The rows a list keeps are rows of the head, strictly ascending. Empty = fine.
std::string find_bad_row(const KeepList& keep, int32_t n_rows) {
  int32_t last = -1;
  for (const int32_t row : keep.rows) {
    if (row < 0 || row >= n_rows)
      return "row " + std::to_string(row) + " of " + std::to_string(n_rows);
    if (row <= last)
      return "row " + std::to_string(row) + " after row " + std::to_string(last);
    last = row;
  }
  return "";
}

// Every list names a head of the shape, none twice. Empty = fine.
std::string find_bad_head(const KeepPlan& plan, const StoreShape& shape) {
  std::vector<bool> named(static_cast<size_t>(shape.n_layers) * static_cast<size_t>(shape.n_kv_heads), false);
  for (const KeepList& keep : plan.heads) {
    if (keep.layer < 0 || keep.layer >= shape.n_layers || keep.head < 0 || keep.head >= shape.n_kv_heads) {
      return name_of(keep) + "the store has " + std::to_string(shape.n_layers) + " layers of " +
             std::to_string(shape.n_kv_heads) + " heads";
    }
    const size_t index =
        static_cast<size_t>(keep.layer) * static_cast<size_t>(shape.n_kv_heads) + static_cast<size_t>(keep.head);
    if (named[index])
      return name_of(keep) + "named twice";
    named[index] = true;
  }
  return "";
}

enum class Part : uint8_t { keys, values };

// Moves the keys and notes, or the values, of a job's rows to their targets.
void move_rows(const Job& job, Part part, int head_dim) {
  const RowList& list = *job.list;
  BlockPool& pool = job.in->pool;
  std::array<RowSource, kBlockRows> sources{};
  for (size_t i = job.first_block(); i < job.end_block(); ++i) {
    const uint32_t target = job.targets[i - job.first_block()];
    const auto block_begin = static_cast<int32_t>(i) * kBlockRows;
    // In place the rows before n_same are there already; a fresh block needs them too.
    const int32_t begin = target == list.blocks[i] ? std::max(block_begin, job.n_same) : block_begin;
    const int32_t end = std::min(block_begin + kBlockRows, job.n_kept());
    size_t n = 0;
    for (int32_t row = begin; row < end; ++row) {
      const int32_t source = job.rows[static_cast<size_t>(row)];
      const uint32_t block = list.block_of(source);
      sources[n++] = {.block = pool.payload(block), .slot = source % kBlockRows};
      if (part == Part::keys)
        copy_notes(pool, target, row % kBlockRows, pool, block, source % kBlockRows);
    }
    (part == Part::keys ? gather_keys : gather_values)(pool.payload(target), begin % kBlockRows,
                                                       std::span(sources).first(n), head_dim, job.in->type);
  }
}

}  // namespace

void copy_notes(BlockPool& to, uint32_t dst_block, int dst_slot, const BlockPool& from, uint32_t src_block,
                int src_slot) {
  to.positions(dst_block)[dst_slot] = from.positions(src_block)[src_slot];
  for (int note = 0; note < to.n_notes(); ++note)
    to.notes(dst_block, note)[dst_slot] = from.notes(src_block, note)[src_slot];
  to.flags(dst_block)[dst_slot] = from.flags(src_block)[src_slot];
}

Status Store::compact(SequenceId seq, const KeepPlan& plan, Executor& executor) {
  Impl& impl = *impl_;
  const std::string bad_head = find_bad_head(plan, impl.shape);
  if (!bad_head.empty())
    return Error{ErrorCode::failed, bad_head};
  std::vector<Job> jobs;
  jobs.reserve(2 * plan.heads.size());
  int64_t needed = 0;
  int64_t needed_tail = 0;
  for (const KeepList& keep : plan.heads) {
    HeadTable& table = impl.table(seq, keep.layer, keep.head);
    const std::string bad_row = find_bad_row(keep, table.n_rows());
    if (!bad_row.empty())
      return Error{ErrorCode::failed, name_of(keep) + bad_row};
    jobs.push_back(make_job(impl.body, table.body, keep.rows, 0));
    needed += count_shared_targets(jobs.back());
    jobs.push_back(make_job(impl.tail, table.tail, keep.rows, table.body.n_rows));
    needed_tail += count_shared_targets(jobs.back());
  }
  if (!impl.fits(needed, needed_tail)) {
    return Error{ErrorCode::budget_impossible,
                 "KV store: copies of shared blocks for compaction: " + impl.arithmetic(needed + needed_tail)};
  }

  for (Job& job : jobs) {
    for (size_t i = job.first_block(); i < job.end_block(); ++i) {
      uint32_t target = job.list->blocks[i];
      if (job.in->pool.refs(target) > 1) {
        const uint32_t before = !job.targets.empty() ? job.targets.back() : i > 0 ? job.list->blocks[i - 1] : kNoBlock;
        target = impl.take_block(*job.in, before, static_cast<int64_t>(job.end_block()), true);
      }
      job.targets.push_back(target);
    }
  }

  // Keys, with what is noted beside a row, and values: two items of each job, whose bytes are apart.
  std::atomic<size_t> next{0};
  executor.run([&](int, int) {
    for (size_t i = next.fetch_add(1); i < 2 * jobs.size(); i = next.fetch_add(1))
      move_rows(jobs[i / 2], i % 2 == 0 ? Part::keys : Part::values, impl.shape.head_dim);
  });

  for (Job& job : jobs) {
    RowList& list = *job.list;
    for (size_t i = job.first_block(); i < job.end_block(); ++i) {
      const uint32_t old = std::exchange(list.blocks[i], job.targets[i - job.first_block()]);
      if (old != list.blocks[i])
        job.in->pool.release(old);
    }
    impl.evicted_rows += list.n_rows - job.n_kept();
    Impl::shrink(*job.in, list, job.n_kept());
  }
  impl.trim();
  return {};
}

}  // namespace kedge::kv
