#include "kv/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <thread>

#include "base/check.h"
#include "kv/store_test_support.h"

namespace kedge::kv {
namespace {

using test::append_run;
using test::holds_ids;
using test::make_store;
using test::run_of_ids;
using ::testing::HasSubstr;

constexpr StoreShape kSmall{.n_layers = 2, .n_kv_heads = 3, .head_dim = 16, .type = RowType::f16};

KeepPlan keep_one(int layer, int head, std::vector<int32_t> rows) {
  return {.heads = {{.layer = layer, .head = head, .rows = std::move(rows)}}};
}

TEST(StoreCreate, CountsWholeBlocksAndRefusesLessThanOne) {
  // head_dim 16: 16 * 16 * 2 * 2 payload + 16 * 9 metadata + 13 books
  EXPECT_EQ(block_bytes_total(kSmall), 1024 + 144 + 13);
  EXPECT_EQ(bytes_for_rows(kSmall, 17, 6), 2 * 6 * block_bytes_total(kSmall));
  EXPECT_EQ(bytes_for_rows(kSmall, 0, 6), 0);
  auto store = Store::create(kSmall, 5 * block_bytes_total(kSmall) - 1);
  ASSERT_TRUE(store.ok());
  EXPECT_EQ((*store)->stats().total_blocks, 4);
  EXPECT_EQ((*store)->stats().free_blocks, 4);
  for (const int64_t budget : {block_bytes_total(kSmall) - 1, int64_t{0}, int64_t{-5}}) {
    auto none = Store::create(kSmall, budget);
    ASSERT_FALSE(none.ok());
    EXPECT_EQ(none.error().code, ErrorCode::budget_impossible);
    EXPECT_THAT(none.error().message, HasSubstr(std::to_string(budget) + " bytes"));
  }
}

TEST(StoreCreate, RefusesShapesThatNoKernelReads) {
  for (const int head_dim : {0, -16, 8, 72, 272}) {
    auto store = Store::create({.n_layers = 1, .n_kv_heads = 1, .head_dim = head_dim}, 1 << 20);
    ASSERT_FALSE(store.ok());
    EXPECT_THAT(store.error().message, HasSubstr("head_dim " + std::to_string(head_dim)));
  }
  EXPECT_FALSE(Store::create({.n_layers = 0, .n_kv_heads = 1, .head_dim = 64}, 1 << 20).ok());
}

TEST(StoreCreate, ALargeBudgetTouchesNoMemory) {
  // 64 GiB of budget: more than the machine may have. Only address space is taken.
  auto store = Store::create({.n_layers = 30, .n_kv_heads = 3, .head_dim = 64}, int64_t{64} << 30);
  ASSERT_TRUE(store.ok()) << store.error().message;
  const SequenceId seq = (*store)->create_sequence();
  ASSERT_TRUE((*store)->reserve(seq, 0, 30, 1).ok());
  EXPECT_EQ((*store)->stats().total_blocks - (*store)->stats().free_blocks, 90);
}

TEST(StoreReserve, AllOrNothingWithTheArithmetic) {
  auto store = make_store(kSmall, 10);
  const SequenceId seq = store->create_sequence();
  const Status refused = store->reserve(seq, 0, 2, 17);  // 2 blocks in each of 6 heads
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::budget_impossible);
  const std::string bytes = std::to_string(12 * block_bytes_total(kSmall));
  EXPECT_THAT(refused.error().message, HasSubstr("17 more rows in 6 heads: 12 blocks"));
  EXPECT_THAT(refused.error().message, HasSubstr("(" + bytes + " bytes) needed, 10 of 10 blocks"));
  EXPECT_EQ(store->stats().free_blocks, 10);
  EXPECT_EQ(store->stats().peak_bytes, 0);
  EXPECT_TRUE(store->reserve(seq, 1, 2, 17).ok());
  EXPECT_EQ(store->stats().free_blocks, 4);
  EXPECT_TRUE(store->reserve(seq, 1, 2, 32).ok()) << "the same blocks hold 32 rows";
  EXPECT_EQ(store->stats().free_blocks, 4);
  append_run(*store, seq, 1, 0, 0, 16);
  store->release_reserved(seq);
  EXPECT_EQ(store->stats().free_blocks, 9);
  EXPECT_EQ(store->check_invariants(), "");
}

TEST(StoreReserve, ReservedBlocksReadAsZerosAlsoWhenUsedBefore) {
  auto store = make_store({.n_layers = 1, .n_kv_heads = 1, .head_dim = 16}, 1);
  for (int use = 0; use < 2; ++use) {
    const SequenceId seq = store->create_sequence();
    ASSERT_TRUE(store->reserve(seq, 0, 1, 1).ok());
    const KvHeadView view = store->view(seq, 0, 0);
    const std::byte* block = view.blocks + view.block_ids[0] * view.block_bytes();
    EXPECT_TRUE(std::all_of(block, block + view.block_bytes(), [](std::byte b) { return b == std::byte{0}; })) << use;
    append_run(*store, seq, 0, 0, 3, 1);
    store->drop_sequence(seq);
  }
}

TEST(StoreAppend, KeepsRowsPositionsAndClearsNotes) {
  for (const RowType type : {RowType::f16, RowType::bf16}) {
    StoreShape shape = kSmall;
    shape.type = type;
    auto store = make_store(shape, 40);
    const SequenceId seq = store->create_sequence();
    ASSERT_TRUE(store->reserve(seq, 0, 2, 50).ok());
    append_run(*store, seq, 1, 2, 7, 33);
    append_run(*store, seq, 1, 2, 100, 1);
    auto ids = run_of_ids(7, 33);
    ids.push_back(100);
    EXPECT_TRUE(holds_ids(*store, seq, 1, 2, ids));
    EXPECT_EQ(store->n_rows(seq, 1, 2), 34);
    EXPECT_EQ(store->n_rows_total(seq), 34);
    EXPECT_EQ(store->view(seq, 1, 2).position(33), 100);
    EXPECT_EQ(store->view(seq, 0, 0).n_rows, 0);
    EXPECT_EQ(store->score(seq, 1, 2, 33), 0.0F);
    EXPECT_EQ(store->flags(seq, 1, 2, 33), 0);
    EXPECT_EQ(store->stats().live_rows, 34);
  }
}

TEST(StoreAppend, TakesRowsAtAnyStride) {
  auto store = make_store(kSmall, 6);
  const SequenceId seq = store->create_sequence();
  ASSERT_TRUE(store->reserve(seq, 0, 1, 3).ok());
  const auto ids = run_of_ids(5, 3);
  const std::vector<float> k = test::make_rows(ids, 16, test::kSaltK);
  const std::vector<float> v = test::make_rows(ids, 16, test::kSaltV);
  std::vector<float> wide(3 * 40, -1.0F);  // k at column 0, v at column 20
  for (size_t i = 0; i < 3; ++i) {
    std::copy_n(k.begin() + i * 16, 16, wide.begin() + i * 40);
    std::copy_n(v.begin() + i * 16, 16, wide.begin() + i * 40 + 20);
  }
  const std::vector<int32_t> positions = {5, 6, 7};
  store->append(seq, 0, 0,
                {.k = wide.data(), .v = wide.data() + 20, .k_stride = 40, .v_stride = 40, .positions = positions});
  EXPECT_TRUE(holds_ids(*store, seq, 0, 0, ids));
}

TEST(StoreCopyRows, TakesAHeadOfAnotherStoreBitForBit) {
  for (int32_t n = 1; n <= 3 * kBlockRows; ++n) {
    auto source = make_store(kSmall, 64);
    const SequenceId from = source->create_sequence();
    ASSERT_TRUE(source->reserve(from, 1, 2, n).ok());
    append_run(*source, from, 1, 2, 5, n);
    auto target = make_store(kSmall, 64);
    const SequenceId to = target->create_sequence();
    ASSERT_TRUE(target->reserve(to, 1, 2, n).ok());
    target->copy_rows(to, 1, 2, source->view(from, 1, 2));
    ASSERT_EQ(target->n_rows(to, 1, 2), n);
    EXPECT_EQ(target->n_rows(to, 1, 1), 0);
    EXPECT_EQ(target->snapshot(to).positions[1][2], source->snapshot(from).positions[1][2]);
    EXPECT_TRUE(holds_ids(*target, to, 1, 2, run_of_ids(5, n))) << n;
    EXPECT_EQ(target->check_invariants(), "");
  }
}

TEST(StoreAppendDeathTest, ChecksItsCaller) {
  auto store = make_store(kSmall, 12);
  const SequenceId seq = store->create_sequence();
  EXPECT_DEATH(append_run(*store, seq, 0, 0, 0, 1), "room was reserved");
  ASSERT_TRUE(store->reserve(seq, 0, 1, 4).ok());
  append_run(*store, seq, 0, 0, 5, 1);
  EXPECT_DEATH(append_run(*store, seq, 0, 0, 5, 1), "positions ascend");
  EXPECT_DEATH((void)store->view(seq, 2, 0), "layer and head");
  EXPECT_DEATH((void)store->view(seq + 1, 0, 0), "sequence exists");
  EXPECT_DEATH((void)store->score(seq, 0, 0, 1), "live range");
  const std::vector<float> two_scores(2);
  EXPECT_DEATH(store->set_scores(seq, 0, 0, two_scores), "one note per row");
  const SequenceId fork = store->fork_sequence(seq);
  EXPECT_DEATH(append_run(*store, fork, 0, 0, 9, 1), "un-shared the last block");
  EXPECT_DEATH(append_run(*store, seq, 0, 0, 9, 1), "un-shared the last block");
}

TEST(StoreCompact, EveryLengthToEveryLength) {
  // K17: a free that rounds one way and a read that rounds the other. 0..80 rows covers every length mod 64.
  constexpr StoreShape shape{.n_layers = 1, .n_kv_heads = 1, .head_dim = 16, .type = RowType::bf16};
  auto store = make_store(shape, 6);
  SerialExecutor serial;
  uint32_t random = 1;
  for (int n = 0; n <= 80; ++n) {
    for (int k = 0; k <= n; ++k) {
      const SequenceId seq = store->create_sequence();
      ASSERT_TRUE(store->reserve(seq, 0, 1, n).ok());
      append_run(*store, seq, 0, 0, 0, n);
      std::vector<int32_t> rows;  // k of n, any of them with the same chance
      for (int i = 0; i < n; ++i) {
        random = random * 1664525U + 1013904223U;
        if ((random >> 8) % static_cast<uint32_t>(n - i) < static_cast<uint32_t>(k) - rows.size())
          rows.push_back(i);
      }
      ASSERT_EQ(rows.size(), static_cast<size_t>(k));
      ASSERT_TRUE(store->compact(seq, keep_one(0, 0, rows), serial).ok());
      ASSERT_TRUE(holds_ids(*store, seq, 0, 0, std::vector<uint32_t>(rows.begin(), rows.end()))) << n << " to " << k;
      ASSERT_EQ(store->snapshot(seq).positions[0][0], rows);
      ASSERT_EQ(store->stats().free_blocks, 6 - (k + kBlockRows - 1) / kBlockRows);
      ASSERT_EQ(store->check_invariants(), "");
      store->drop_sequence(seq);
    }
  }
  EXPECT_EQ(store->stats().free_blocks, 6);
  EXPECT_GT(store->stats().evicted_rows, 0);
}

TEST(StoreCompact, MovesNotesWithTheirRows) {
  auto store = make_store(kSmall, 20);
  const SequenceId seq = store->create_sequence();
  ASSERT_TRUE(store->reserve(seq, 0, 1, 40).ok());
  append_run(*store, seq, 0, 1, 0, 40);
  std::vector<float> scores(40);
  std::vector<uint8_t> flags(40);
  for (size_t i = 0; i < 40; ++i) {
    scores[i] = static_cast<float>(i) / 8;
    flags[i] = static_cast<uint8_t>(i);
  }
  store->set_scores(seq, 0, 1, scores);
  store->set_flags(seq, 0, 1, flags);
  SerialExecutor serial;
  ASSERT_TRUE(store->compact(seq, keep_one(0, 1, {0, 1, 17, 39}), serial).ok());
  EXPECT_EQ(store->score(seq, 0, 1, 2), 17.0F / 8);
  EXPECT_EQ(store->score(seq, 0, 1, 3), 39.0F / 8);
  EXPECT_EQ(store->flags(seq, 0, 1, 2), 17);
  EXPECT_EQ(store->flags(seq, 0, 1, 3), 39);
  EXPECT_EQ(store->stats().evicted_rows, 36);
}

TEST(StoreCompact, EveryNoteColumnMovesAndIsCounted) {
  StoreShape shape = kSmall;
  shape.n_notes = 3;
  EXPECT_EQ(block_bytes_total(shape), block_bytes_total(kSmall) + 2 * kBlockRows * 4);
  auto store = make_store(shape, 20);
  const SequenceId seq = store->create_sequence();
  ASSERT_TRUE(store->reserve(seq, 0, 1, 40).ok());
  append_run(*store, seq, 0, 1, 0, 40);
  std::vector<float> values(40);
  for (int note = 0; note < 3; ++note) {
    EXPECT_EQ(store->notes(seq, 0, 1, note), std::vector<float>(40, 0.0F));
    for (int i = 0; i < 40; ++i)
      values[static_cast<size_t>(i)] = static_cast<float>(100 * note + i);
    store->set_notes(seq, 0, 1, note, values);
  }
  SerialExecutor serial;
  ASSERT_TRUE(store->compact(seq, keep_one(0, 1, {0, 17, 39}), serial).ok());
  for (int note = 0; note < 3; ++note) {
    const float base = static_cast<float>(100 * note);
    EXPECT_EQ(store->notes(seq, 0, 1, note), (std::vector<float>{base, base + 17, base + 39}));
  }
  // A fork that appends copies the shared tail with its notes.
  const SequenceId child = store->fork_sequence(seq);
  ASSERT_TRUE(store->reserve(child, 0, 1, 1).ok());
  append_run(*store, child, 0, 1, 40, 1);
  EXPECT_EQ(store->notes(child, 0, 1, 2), (std::vector<float>{200, 217, 239, 0}));
  EXPECT_EQ(store->notes(seq, 0, 1, 2), (std::vector<float>{200, 217, 239}));
}

TEST(StoreCompact, RefusesABadPlanWhole) {
  auto store = make_store(kSmall, 20);
  const SequenceId seq = store->create_sequence();
  ASSERT_TRUE(store->reserve(seq, 0, 1, 20).ok());
  for (int head = 0; head < 3; ++head)
    append_run(*store, seq, 0, head, 0, 20);
  SerialExecutor serial;
  const KeepList good{.layer = 0, .head = 0, .rows = {1, 2}};
  const std::vector<std::pair<KeepList, std::string>> bad = {
      {{.layer = 0, .head = 0, .rows = {}}, "named twice"},
      {{.layer = 2, .head = 0, .rows = {}}, "2 layers of 3 heads"},
      {{.layer = 0, .head = -1, .rows = {}}, "2 layers of 3 heads"},
      {{.layer = 0, .head = 1, .rows = {20}}, "row 20 of 20"},
      {{.layer = 0, .head = 1, .rows = {-1}}, "row -1 of 20"},
      {{.layer = 0, .head = 1, .rows = {3, 3}}, "row 3 after row 3"},
      {{.layer = 0, .head = 1, .rows = {4, 3}}, "row 3 after row 4"},
  };
  for (const auto& [list, words] : bad) {
    const Status status = store->compact(seq, {.heads = {good, list}}, serial);
    ASSERT_FALSE(status.ok()) << words;
    EXPECT_EQ(status.error().code, ErrorCode::failed);
    EXPECT_THAT(status.error().message, HasSubstr(words));
    for (int head = 0; head < 3; ++head)
      EXPECT_TRUE(holds_ids(*store, seq, 0, head, run_of_ids(0, 20)));
  }
  EXPECT_EQ(store->stats().evicted_rows, 0);
}

TEST(StoreFork, CompactionLeavesTheOtherOwnersRowsAlone) {
  auto store = make_store(kSmall, 30);
  const SequenceId seq = store->create_sequence();
  ASSERT_TRUE(store->reserve(seq, 0, 1, 40).ok());
  append_run(*store, seq, 0, 0, 0, 40);
  store->release_reserved(seq);
  const SequenceId fork = store->fork_sequence(seq);
  EXPECT_EQ(store->stats().free_blocks, 27);
  EXPECT_EQ(store->stats().live_rows, 40);
  SerialExecutor serial;
  std::vector<int32_t> rows(20);
  std::iota(rows.begin(), rows.end(), 0);  // the first 20 stay, 30 and 35 follow: block 0 stays shared
  rows.push_back(30);
  rows.push_back(35);
  ASSERT_TRUE(store->compact(fork, keep_one(0, 0, rows), serial).ok());
  EXPECT_TRUE(holds_ids(*store, seq, 0, 0, run_of_ids(0, 40)));
  EXPECT_TRUE(holds_ids(*store, fork, 0, 0, std::vector<uint32_t>(rows.begin(), rows.end())));
  EXPECT_EQ(store->view(seq, 0, 0).block_ids[0], store->view(fork, 0, 0).block_ids[0]);
  EXPECT_NE(store->view(seq, 0, 0).block_ids[1], store->view(fork, 0, 0).block_ids[1]);
  EXPECT_EQ(store->stats().free_blocks, 26);
  EXPECT_EQ(store->check_invariants(), "");
}

TEST(StoreFork, CompactionThatCannotCopyChangesNothing) {
  auto store = make_store(kSmall, 6);
  const SequenceId seq = store->create_sequence();
  ASSERT_TRUE(store->reserve(seq, 0, 1, 30).ok());
  for (int head = 0; head < 3; ++head)
    append_run(*store, seq, 0, head, 0, 30);
  const SequenceId fork = store->fork_sequence(seq);
  SerialExecutor serial;
  const Status status = store->compact(fork, keep_one(0, 1, {5}), serial);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::budget_impossible);
  EXPECT_THAT(status.error().message, HasSubstr("1 blocks of 1181 bytes (1181 bytes) needed, 0 of 6 blocks"));
  EXPECT_TRUE(holds_ids(*store, fork, 0, 1, run_of_ids(0, 30)));
  EXPECT_TRUE(store->compact(fork, keep_one(0, 1, {0, 1, 2}), serial).ok()) << "a cut at the end copies nothing";
  EXPECT_TRUE(holds_ids(*store, seq, 0, 1, run_of_ids(0, 30)));
  EXPECT_EQ(store->check_invariants(), "");
}

TEST(StoreFork, ReserveCopiesOnlyAPartlyFilledTail) {
  auto store = make_store(kSmall, 12);
  const SequenceId seq = store->create_sequence();
  ASSERT_TRUE(store->reserve(seq, 0, 1, 20).ok());
  append_run(*store, seq, 0, 0, 0, 20);  // tail of 4
  append_run(*store, seq, 0, 1, 0, 16);  // full; its second block stays reserved with the parent
  const SequenceId fork = store->fork_sequence(seq);
  EXPECT_EQ(store->stats().free_blocks, 6);
  ASSERT_TRUE(store->reserve(fork, 0, 1, 1).ok());  // head 0 copies its tail, heads 1 and 2 take a block each
  EXPECT_EQ(store->stats().free_blocks, 3);
  EXPECT_EQ(store->view(seq, 0, 0).block_ids[0], store->view(fork, 0, 0).block_ids[0]);
  for (int head = 0; head < 3; ++head)
    append_run(*store, fork, 0, head, 50, 1);
  append_run(*store, seq, 0, 0, 20, 1);  // the parent is sole owner of its tail again
  EXPECT_TRUE(holds_ids(*store, seq, 0, 0, run_of_ids(0, 21)));
  auto ids = run_of_ids(0, 20);
  ids.push_back(50);
  EXPECT_TRUE(holds_ids(*store, fork, 0, 0, ids));
  EXPECT_EQ(store->check_invariants(), "");
  store->drop_sequence(seq);
  EXPECT_TRUE(holds_ids(*store, fork, 0, 0, ids));
  store->drop_sequence(fork);
  EXPECT_EQ(store->stats().free_blocks, 12);
}

TEST(StoreFork, ATruncatedForkCopiesBeforeItWritesIntoTheSharedTail) {
  auto store = make_store({.n_layers = 1, .n_kv_heads = 1, .head_dim = 16}, 4);
  const SequenceId seq = store->create_sequence();
  ASSERT_TRUE(store->reserve(seq, 0, 1, 12).ok());
  append_run(*store, seq, 0, 0, 0, 12);
  const SequenceId fork = store->fork_sequence(seq);
  store->truncate(fork, 5);
  EXPECT_EQ(store->stats().free_blocks, 3);
  EXPECT_EQ(store->stats().live_rows, 12);
  ASSERT_TRUE(store->reserve(fork, 0, 1, 2).ok());
  append_run(*store, fork, 0, 0, 70, 2);
  EXPECT_TRUE(holds_ids(*store, seq, 0, 0, run_of_ids(0, 12)));
  EXPECT_TRUE(holds_ids(*store, fork, 0, 0, std::vector<uint32_t>{0, 1, 2, 3, 4, 70, 71}));
  EXPECT_EQ(store->stats().live_rows, 19);
}

TEST(StoreTruncate, CutsByPositionNotByIndex) {
  auto store = make_store(kSmall, 12);
  const SequenceId seq = store->create_sequence();
  ASSERT_TRUE(store->reserve(seq, 0, 2, 20).ok());
  append_run(*store, seq, 0, 0, 100, 20);
  append_run(*store, seq, 1, 2, 0, 20);
  store->truncate(seq, 110);
  EXPECT_EQ(store->n_rows(seq, 0, 0), 10);
  EXPECT_EQ(store->n_rows(seq, 1, 2), 20);
  store->truncate(seq, 0);
  EXPECT_EQ(store->n_rows_total(seq), 0);
  EXPECT_EQ(store->stats().free_blocks, 12);
  EXPECT_EQ(store->stats().evicted_rows, 0) << "a rewind is not an eviction";
}

TEST(StoreThreads, HeadsAreAppendedAndViewedAndCompactedAtOnce) {
  constexpr StoreShape shape{.n_layers = 4, .n_kv_heads = 4, .head_dim = 32};
  auto store = make_store(shape, 16 * 20);
  const SequenceId seq = store->create_sequence();
  ThreadExecutor executor(4);
  for (int round = 0; round < 5; ++round) {
    ASSERT_TRUE(store->reserve(seq, 0, 4, 100).ok());
    executor.run([&](int ith, int nth) {
      for (int i = ith; i < 16; i += nth) {
        for (int step = 0; step < 100; ++step) {
          append_run(*store, seq, i / 4, i % 4, round * 100 + step, 1);
          const KvHeadView view = store->view(seq, i / 4, i % 4);
          check(view.position(view.n_rows - 1) == round * 100 + step, "the row just appended");
        }
      }
    });
    KeepPlan plan;
    for (int i = 0; i < 16; ++i) {
      KeepList keep{.layer = i / 4, .head = i % 4, .rows = {}};
      for (int32_t row = i % 3; row < store->n_rows(seq, i / 4, i % 4); row += 2)
        keep.rows.push_back(row);
      plan.heads.push_back(keep);
    }
    ASSERT_TRUE(store->compact(seq, plan, executor).ok());
    ASSERT_EQ(store->check_invariants(), "");
  }
  for (int i = 0; i < 16; ++i) {
    const auto positions = store->snapshot(seq).positions[static_cast<size_t>(i / 4)][static_cast<size_t>(i % 4)];
    EXPECT_TRUE(holds_ids(*store, seq, i / 4, i % 4, std::vector<uint32_t>(positions.begin(), positions.end())));
  }
}

// Share of neighbouring blocks that are neighbours in memory after `n_rows` rows in each of 90 heads, one at a time.
double round_robin_sequential(double slack, int n_rows) {
  constexpr StoreShape shape{.n_layers = 30, .n_kv_heads = 3, .head_dim = 16};
  const int64_t tight = int64_t{90} * (n_rows / kBlockRows);
  auto store = make_store(shape, static_cast<int64_t>(static_cast<double>(tight) * slack));
  const SequenceId seq = store->create_sequence();
  for (int step = 0; step < n_rows; ++step) {
    if (!store->reserve(seq, 0, 30, 1).ok())
      return -1;
    for (int head = 0; head < 90; ++head)
      append_run(*store, seq, head / 3, head % 3, step, 1);
  }
  return store->check_invariants().empty() ? store->stats().sequential : -1;
}

TEST(StoreRuns, HeadsThatGrowTogetherStayInRuns) {
  EXPECT_GE(round_robin_sequential(1.25, 4096), 0.9);
  // A tight arena runs out of empty extents; runs get shorter, not useless.
  const double tight = round_robin_sequential(1.0, 4096);
  const double tight_short = round_robin_sequential(1.0, 160);
  EXPECT_GE(tight, 0.8);
  EXPECT_GE(tight_short, 0.5);
  std::printf("sequential in a tight arena: %.3f (4096 rows a head), %.3f (160 rows a head)\n", tight, tight_short);
}

TEST(StoreRuns, APromptReservedAtOnceIsOneRun) {
  constexpr StoreShape shape{.n_layers = 3, .n_kv_heads = 3, .head_dim = 16};
  auto store = make_store(shape, 9 * 64 * 2);
  const SequenceId seq = store->create_sequence();
  ASSERT_TRUE(store->reserve(seq, 0, 3, 1024).ok());
  EXPECT_EQ(store->stats().sequential, 1.0);
}

}  // namespace
}  // namespace kedge::kv
