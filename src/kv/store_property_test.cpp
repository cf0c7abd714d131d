// Random operations on a Store beside a model of it made of plain vectors. No language model, no policy.
// RC_PARAMS (rapidcheck) overrides the number of sequences and replays a failure.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "kv/store_test_support.h"

namespace kedge::kv {
namespace {

struct Row {
  int32_t position;
  uint32_t id;
  float score;
  uint8_t flags;
  bool operator==(const Row&) const = default;
};

struct ModelHead {
  std::vector<Row> rows;
  int64_t n_blocks = 0;  // held, reserved ones included
};

struct ModelSequence {
  std::vector<ModelHead> heads;
  int32_t n_tokens = 0;  // next position
};

enum class OpKind : uint8_t { create, fork, drop, reserve, release, append, compact, truncate, scores, flags };

// Numbers are reduced to what the state allows when the operation runs, so that any list of them shrinks.
struct Op {
  OpKind kind;
  uint32_t which;  // sequence
  uint32_t where;  // layer, head
  uint32_t amount;
  uint32_t noise;
};

std::ostream& operator<<(std::ostream& out, const Op& op) {
  static constexpr const char* kNames[] = {"create", "fork",    "drop",     "reserve", "release",
                                           "append", "compact", "truncate", "scores",  "flags"};
  return out << kNames[static_cast<size_t>(op.kind)] << "(seq " << op.which << ", where " << op.where << ", amount "
             << op.amount << ", noise " << op.noise << ")";
}

// One word is one operation: a generator per field costs more than running it, under a sanitizer above all.
Op decode(uint32_t word) {
  static constexpr OpKind kWeighted[] = {
      OpKind::create,  OpKind::fork,    OpKind::fork,     OpKind::fork,    OpKind::drop,
      OpKind::reserve, OpKind::reserve, OpKind::release,  OpKind::append,  OpKind::append,
      OpKind::append,  OpKind::append,  OpKind::append,   OpKind::append,  OpKind::append,
      OpKind::append,  OpKind::append,  OpKind::compact,  OpKind::compact, OpKind::compact,
      OpKind::compact, OpKind::compact, OpKind::truncate, OpKind::scores,  OpKind::flags};
  uint64_t hash = word * 0x9E3779B97F4A7C15U;  // a bijection of words, so that all fields vary
  hash = (hash ^ (hash >> 29)) * 0xBF58476D1CE4E5B9U;
  hash ^= hash >> 32;
  const auto field = [&hash](uint64_t n) {
    const auto value = static_cast<uint32_t>(hash % n);
    hash /= n;
    return value;
  };
  const OpKind kind = kWeighted[field(std::size(kWeighted))];
  return {.kind = kind, .which = field(1000), .where = field(1000), .amount = field(1000), .noise = field(1000)};
}

rc::Gen<Op> any_op() { return rc::gen::map(rc::gen::resize(rc::kNominalSize, rc::gen::arbitrary<uint32_t>()), decode); }

int64_t blocks_for(size_t n_rows) { return (static_cast<int64_t>(n_rows) + kBlockRows - 1) / kBlockRows; }

class Machine {
 public:
  Machine(const StoreShape& shape, int64_t n_blocks)
      : shape_(shape), n_blocks_(n_blocks), store_(test::make_store(shape, n_blocks)) {
    RC_ASSERT(store_ != nullptr);
    create();
  }

  void run(const Op& op) {
    if (model_.empty() || op.kind == OpKind::create) {
      if (model_.size() < 4)
        create();
      return;
    }
    auto it = model_.begin();
    std::advance(it, static_cast<long>(op.which % model_.size()));
    const SequenceId seq = it->first;
    switch (op.kind) {
      case OpKind::create:
        break;
      case OpKind::fork:
        if (model_.size() < 4)
          fork(seq);
        break;
      case OpKind::drop:
        store_->drop_sequence(seq);
        model_.erase(seq);
        break;
      case OpKind::reserve:
        (void)reserve(seq, op.where % shape_.n_layers, op.amount % 40);
        break;
      case OpKind::release:
        release(seq);
        break;
      case OpKind::append:
        append(seq, op);
        break;
      case OpKind::compact:
        compact(seq, op);
        break;
      case OpKind::truncate:
        truncate(seq, op);
        break;
      case OpKind::scores:
        set_notes(seq, op, true);
        break;
      case OpKind::flags:
        set_notes(seq, op, false);
        break;
    }
  }

  // Everything the store says equals the model.
  void compare() const {
    RC_ASSERT(store_->check_invariants() == "");
    std::map<uint32_t, size_t> rows_of_block;
    int64_t n_reserved = 0;
    for (const auto& [seq, sequence] : model_) {
      const Store::Snapshot snapshot = store_->snapshot(seq);
      int64_t n_rows = 0;
      for (size_t i = 0; i < sequence.heads.size(); ++i) {
        compare_head(seq, static_cast<int>(i), snapshot);
        const std::vector<Row>& rows = sequence.heads[i].rows;
        n_rows += static_cast<int64_t>(rows.size());
        n_reserved += sequence.heads[i].n_blocks - blocks_for(rows.size());
        for (size_t begin = 0; begin < rows.size(); begin += kBlockRows) {
          size_t& held = rows_of_block[block_id(seq, static_cast<int>(i), begin / kBlockRows)];
          held = std::max(held, std::min<size_t>(kBlockRows, rows.size() - begin));
        }
      }
      RC_ASSERT(store_->n_rows_total(seq) == n_rows);
    }
    const StoreStats stats = store_->stats();
    int64_t live_rows = 0;
    for (const auto& [block, held] : rows_of_block)
      live_rows += static_cast<int64_t>(held);
    RC_ASSERT(stats.live_rows == live_rows);
    RC_ASSERT(stats.total_blocks == n_blocks_);
    RC_ASSERT(stats.total_blocks - stats.free_blocks == static_cast<int64_t>(rows_of_block.size()) + n_reserved);
    RC_ASSERT(stats.live_bytes == (stats.total_blocks - stats.free_blocks) * block_bytes_total(shape_));
    RC_ASSERT(stats.live_bytes <= stats.peak_bytes);
    RC_ASSERT(stats.peak_bytes <= stats.budget_bytes);
    RC_ASSERT(stats.evicted_rows == evicted_rows_);
  }

 private:
  int layer_of(int index) const { return index / shape_.n_kv_heads; }
  int head_of(int index) const { return index % shape_.n_kv_heads; }
  int n_heads() const { return shape_.n_layers * shape_.n_kv_heads; }
  int any_head(const Op& op) const { return static_cast<int>(op.where % static_cast<uint32_t>(n_heads())); }

  uint32_t block_id(SequenceId seq, int index, size_t block) const {
    return store_->view(seq, layer_of(index), head_of(index)).block_ids[block];
  }

  // The block of the head has another owner. A shared block stands at the same place of all its owners' tables.
  bool is_shared(SequenceId seq, int index, size_t block) const {
    for (const auto& [other, sequence] : model_) {
      const size_t held = static_cast<size_t>(blocks_for(sequence.heads[static_cast<size_t>(index)].rows.size()));
      if (other != seq && block < held && block_id(other, index, block) == block_id(seq, index, block))
        return true;
    }
    return false;
  }

  void compare_head(SequenceId seq, int index, const Store::Snapshot& snapshot) const {
    const int layer = layer_of(index);
    const int head = head_of(index);
    const std::vector<Row>& rows = model_.at(seq).heads[static_cast<size_t>(index)].rows;
    std::vector<uint32_t> ids;
    std::vector<int32_t> positions;
    for (const Row& row : rows) {
      ids.push_back(row.id);
      positions.push_back(row.position);
    }
    RC_ASSERT(store_->n_rows(seq, layer, head) == static_cast<int32_t>(rows.size()));
    RC_ASSERT(snapshot.positions[static_cast<size_t>(layer)][static_cast<size_t>(head)] == positions);
    RC_ASSERT(test::holds_ids(*store_, seq, layer, head, ids));
    for (size_t r = 0; r < rows.size(); ++r) {
      RC_ASSERT(store_->score(seq, layer, head, static_cast<int32_t>(r)) == rows[r].score);
      RC_ASSERT(store_->flags(seq, layer, head, static_cast<int32_t>(r)) == rows[r].flags);
    }
  }

  void create() {
    const SequenceId seq = store_->create_sequence();
    RC_ASSERT(model_.count(seq) == 0U);
    model_[seq].heads.resize(static_cast<size_t>(n_heads()));
  }

  void fork(SequenceId seq) {
    const SequenceId child = store_->fork_sequence(seq);
    RC_ASSERT(model_.count(child) == 0U);
    model_[child] = model_[seq];
    for (ModelHead& head : model_[child].heads)
      head.n_blocks = blocks_for(head.rows.size());
  }

  // Succeeds exactly when the blocks it needs are free.
  bool reserve(SequenceId seq, uint32_t layer, uint32_t n_rows) {
    std::vector<ModelHead> after = model_[seq].heads;
    int64_t needed = 0;
    const int first = static_cast<int>(layer) * shape_.n_kv_heads;
    for (int i = first; n_rows > 0 && i < first + shape_.n_kv_heads; ++i) {
      ModelHead& head = after[static_cast<size_t>(i)];
      const int64_t blocks = std::max(head.n_blocks, blocks_for(head.rows.size() + n_rows));
      needed += blocks - head.n_blocks;
      if (head.rows.size() % kBlockRows != 0 && is_shared(seq, i, head.rows.size() / kBlockRows))
        ++needed;
      head.n_blocks = blocks;
    }
    const bool fits = needed <= store_->stats().free_blocks;
    const Status status =
        store_->reserve(seq, static_cast<int>(layer), static_cast<int>(layer) + 1, static_cast<int>(n_rows));
    RC_ASSERT(status.ok() == fits);
    if (fits)
      model_[seq].heads = after;
    if (!fits)
      RC_ASSERT(status.error().message.find(std::to_string(needed) + " blocks") != std::string::npos);
    return fits;
  }

  void release(SequenceId seq) {
    store_->release_reserved(seq);
    for (ModelHead& head : model_[seq].heads)
      head.n_blocks = blocks_for(head.rows.size());
  }

  // As decoding and prompts do: reserve a layer, then append to some of its heads, maybe fewer rows than reserved.
  void append(SequenceId seq, const Op& op) {
    const uint32_t layer = op.where % static_cast<uint32_t>(shape_.n_layers);
    const uint32_t n_rows = op.amount % 2 == 0 ? op.amount % 40 : op.amount % 3;
    if (!reserve(seq, layer, n_rows))
      return;
    ModelSequence& sequence = model_[seq];
    for (int h = 0; h < shape_.n_kv_heads; ++h) {
      if (op.noise >> h & 1U)
        continue;
      const size_t index = layer * static_cast<size_t>(shape_.n_kv_heads) + static_cast<size_t>(h);
      std::vector<uint32_t> ids;
      std::vector<int32_t> positions;
      for (uint32_t i = 0; i < n_rows; ++i) {
        positions.push_back(sequence.n_tokens + static_cast<int32_t>(i * (1 + op.noise % 3)));
        ids.push_back(next_id_++);
        sequence.heads[index].rows.push_back({.position = positions.back(), .id = ids.back(), .score = 0, .flags = 0});
      }
      test::append_ids(*store_, seq, static_cast<int>(layer), h, ids, positions);
    }
    sequence.n_tokens += static_cast<int32_t>(n_rows * 3);
  }

  void compact(SequenceId seq, const Op& op) {
    std::vector<ModelHead> after = model_[seq].heads;
    KeepPlan plan;
    int64_t needed = 0;
    int64_t evicted = 0;
    uint32_t random = op.noise * 7919U + op.amount;
    for (int i = n_heads() - 1; i >= 0; --i) {
      if (op.where >> (i % 10) & 1U)
        continue;
      ModelHead& head = after[static_cast<size_t>(i)];
      const std::vector<Row> rows = std::exchange(head.rows, {});
      KeepList keep{.layer = layer_of(i), .head = head_of(i), .rows = {}};
      const size_t n_sure = op.amount % 100 * rows.size() / 100;  // an unchanged prefix, then rows by chance
      for (size_t r = 0; r < rows.size(); ++r) {
        random = random * 1664525U + 1013904223U;
        if (r >= n_sure && (random >> 16) % 16 >= 6 + op.noise % 11)
          continue;
        keep.rows.push_back(static_cast<int32_t>(r));
        head.rows.push_back(rows[r]);
      }
      size_t n_same = 0;
      while (n_same < keep.rows.size() && keep.rows[n_same] == static_cast<int32_t>(n_same))
        ++n_same;
      for (size_t b = n_same / kBlockRows; n_same < keep.rows.size() && b * kBlockRows < keep.rows.size(); ++b) {
        if (is_shared(seq, i, b))
          ++needed;
      }
      evicted += static_cast<int64_t>(rows.size() - head.rows.size());
      head.n_blocks = blocks_for(head.rows.size());
      plan.heads.push_back(std::move(keep));
    }
    if (op.noise % 16 == 0 && !plan.heads.empty())
      return compact_badly(seq, std::move(plan), op);
    const bool fits = needed <= store_->stats().free_blocks;
    const Status status = store_->compact(seq, plan, executor_);
    RC_ASSERT(status.ok() == fits);
    if (!fits)
      return;
    model_[seq].heads = after;
    evicted_rows_ += evicted;
  }

  // A plan that is wrong in one place is refused; compare() then sees that nothing changed.
  void compact_badly(SequenceId seq, KeepPlan plan, const Op& op) {
    KeepList& last = plan.heads.back();
    const auto n_rows = static_cast<int32_t>(
        model_[seq].heads[static_cast<size_t>(last.layer * shape_.n_kv_heads + last.head)].rows.size());
    switch (op.amount % 4) {
      case 0:
        last.rows.push_back(n_rows);
        break;
      case 1:
        last.rows.insert(last.rows.begin(), last.rows.empty() ? -1 : last.rows.back());
        break;
      case 2:
        plan.heads.push_back({.layer = last.layer, .head = last.head, .rows = {}});
        break;
      default:
        plan.heads.push_back({.layer = shape_.n_layers, .head = 0, .rows = {}});
        break;
    }
    const bool may_be_fine = op.amount % 4 == 1 && last.rows.size() == 2 && last.rows[0] == last.rows[1];
    const Status status = store_->compact(seq, plan, executor_);
    RC_ASSERT(!status.ok());
    RC_ASSERT((may_be_fine || status.error().code == ErrorCode::failed));
  }

  void truncate(SequenceId seq, const Op& op) {
    ModelSequence& sequence = model_[seq];
    const auto n_tokens = static_cast<int32_t>(static_cast<int64_t>(op.amount) * (sequence.n_tokens + 1) / 999);
    store_->truncate(seq, n_tokens);
    for (ModelHead& head : sequence.heads) {
      std::erase_if(head.rows, [n_tokens](const Row& row) { return row.position >= n_tokens; });
      head.n_blocks = blocks_for(head.rows.size());
    }
    sequence.n_tokens = std::min(sequence.n_tokens, n_tokens);
  }

  // Notes belong to the stored row: every owner of its block sees them.
  void set_notes(SequenceId seq, const Op& op, bool is_score) {
    const int index = any_head(op);
    const size_t n_rows = model_[seq].heads[static_cast<size_t>(index)].rows.size();
    std::vector<float> scores;
    std::vector<uint8_t> flags;
    for (size_t r = 0; r < n_rows; ++r) {
      scores.push_back(static_cast<float>(op.noise) + static_cast<float>(r));
      flags.push_back(static_cast<uint8_t>(op.noise + r));
    }
    if (is_score)
      store_->set_scores(seq, layer_of(index), head_of(index), scores);
    if (!is_score)
      store_->set_flags(seq, layer_of(index), head_of(index), flags);
    for (auto& [other, sequence] : model_) {
      std::vector<Row>& rows = sequence.heads[static_cast<size_t>(index)].rows;
      for (size_t r = 0; r < std::min(n_rows, rows.size()); ++r) {
        if (block_id(other, index, r / kBlockRows) != block_id(seq, index, r / kBlockRows))
          continue;
        if (is_score)
          rows[r].score = scores[r];
        if (!is_score)
          rows[r].flags = flags[r];
      }
    }
  }

  StoreShape shape_;
  int64_t n_blocks_;
  std::unique_ptr<Store> store_;
  std::map<SequenceId, ModelSequence> model_;
  SerialExecutor executor_;
  uint32_t next_id_ = 1;
  int64_t evicted_rows_ = 0;
};

bool check_property(const std::string& name, int n_sequences, int max_ops) {
  rc::detail::TestMetadata metadata;
  metadata.id = name;
  rc::detail::TestParams params = rc::detail::configuration().testParams;
  params.maxSuccess = std::max(params.maxSuccess, n_sequences);
  const auto result = rc::detail::checkTestable(
      [max_ops] {
        const StoreShape shape{.n_layers = *rc::gen::inRange(1, 4),
                               .n_kv_heads = *rc::gen::inRange(1, 4),
                               .head_dim = *rc::gen::element(16, 32),
                               .type = *rc::gen::element(RowType::f16, RowType::bf16)};
        Machine machine(shape, *rc::gen::inRange(1, 80));
        const int n_ops = *rc::gen::inRange(1, max_ops + 1);
        for (const Op& op : *rc::gen::container<std::vector<Op>>(static_cast<size_t>(n_ops), any_op())) {
          machine.run(op);
          machine.compare();
        }
      },
      metadata, params);
  if (!result.template is<rc::detail::SuccessResult>())
    rc::detail::printResultMessage(result, std::cerr);
  return result.template is<rc::detail::SuccessResult>();
}

// Sanitizers run these 10 to 40 times slower; what they look for needs fewer sequences (threads: StoreThreads).
#if defined(__SANITIZE_THREAD__)
constexpr int kShort = 500;
constexpr int kLong = 20;
#elif defined(__SANITIZE_ADDRESS__)
constexpr int kShort = 2000;
constexpr int kLong = 50;
#else
constexpr int kShort = 10000;
constexpr int kLong = 200;
#endif

TEST(StoreProperty, TenThousandSequencesOfOperationsEqualTheModel) { EXPECT_TRUE(check_property("short", kShort, 50)); }
TEST(StoreProperty, LongSequencesOfOperationsEqualTheModel) { EXPECT_TRUE(check_property("long", kLong, 300)); }

}  // namespace
}  // namespace kedge::kv
