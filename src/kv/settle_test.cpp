// Quantised rows in the store: the f16 tail, its window, what moves as bytes, and the one budget of both pools.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "kv/store_test_support.h"

namespace kedge::kv {
namespace {

using test::append_ids;
using test::make_rows;
using test::run_of_ids;
using ::testing::HasSubstr;

constexpr StoreShape kShape{
    .n_layers = 2, .n_kv_heads = 2, .head_dim = 32, .type = {RowType::q8, RowType::q4}, .f16_window = 32};

std::unique_ptr<Store> make_quantised(const StoreShape& shape, int64_t n_blocks, int64_t n_append) {
  auto store = Store::create(shape, n_blocks * block_bytes_total(shape) + tail_bytes(shape, n_append));
  return store.ok() ? *std::move(store) : nullptr;
}

// As a session does it: one layer, every head the same rows.
void append_layer(Store& store, SequenceId seq, int layer, uint32_t first, int n) {
  ASSERT_TRUE(store.reserve(seq, layer, layer + 1, n).ok());
  ASSERT_TRUE(store.open_tail(seq, layer, layer + 1, n).ok());
  const std::vector<uint32_t> ids = run_of_ids(first, n);
  const std::vector<int32_t> positions(ids.begin(), ids.end());
  for (int head = 0; head < store.shape().n_kv_heads; ++head)
    append_ids(store, seq, layer, head, ids, positions);
}

// What a row of `id` reads as once it is quantised: the same numbers wherever it lies.
std::vector<float> quantised(uint32_t id, const StoreShape& shape, bool keys) {
  const std::vector<float> k = make_rows(std::vector{id}, shape.head_dim, test::kSaltK);
  const std::vector<float> v = make_rows(std::vector{id}, shape.head_dim, test::kSaltV);
  std::vector<std::byte> block(block_layout(shape.head_dim, shape.type).bytes);
  write_row(block.data(), 0, shape.head_dim, shape.type, k.data(), v.data());
  const uint32_t index = 0;
  const KvHeadView rows = {.blocks = block.data(),
                           .positions = nullptr,
                           .block_ids = &index,
                           .n_rows = 1,
                           .head_dim = shape.head_dim,
                           .type = shape.type};
  std::vector<float> out(static_cast<size_t>(shape.head_dim));
  read_rows(rows, 0, 1, keys ? out.data() : nullptr, keys ? nullptr : out.data());
  return out;
}

// Ids of a head's rows: quantised in the body, exact in the tail.
void expect_ids(const Store& store, SequenceId seq, int layer, int head, const std::vector<uint32_t>& ids) {
  const KvHeadView view = store.view(seq, layer, head);
  ASSERT_EQ(view.n_rows, static_cast<int32_t>(ids.size()));
  const auto d = static_cast<size_t>(view.head_dim);
  std::vector<float> k(d);
  std::vector<float> v(d);
  for (int32_t row = 0; row < view.n_rows; ++row) {
    const uint32_t id = ids[static_cast<size_t>(row)];
    read_rows(view, row, row + 1, k.data(), v.data());
    if (row < view.n_body()) {
      ASSERT_EQ(k, quantised(id, store.shape(), true)) << "row " << row;
      ASSERT_EQ(v, quantised(id, store.shape(), false)) << "row " << row;
    } else {
      ASSERT_EQ(k, make_rows(std::vector{id}, view.head_dim, test::kSaltK)) << "row " << row << ": f16 is exact here";
      ASSERT_EQ(v, make_rows(std::vector{id}, view.head_dim, test::kSaltV)) << "row " << row;
    }
  }
}

TEST(Tail, HoldsTheWindowAndLessThanABlockMore) {
  auto store = make_quantised(kShape, 40, 16);
  const SequenceId seq = store->create_sequence();
  SerialExecutor executor;
  for (int n = 0; n < 100; ++n) {
    append_layer(*store, seq, 0, static_cast<uint32_t>(n), 1);
    store->settle(seq, 0, 1, executor);
    const KvHeadView view = store->view(seq, 0, 1);
    ASSERT_EQ(view.n_rows, n + 1);
    ASSERT_EQ(view.n_body(), n + 1 < 48 ? 0 : (n + 1 - 32) / 16 * 16) << n;
    ASSERT_EQ(view.position(n), n);
    ASSERT_EQ(store->check_invariants(), "");
  }
  expect_ids(*store, seq, 0, 1, run_of_ids(0, 100));
}

TEST(Tail, AppendedBatchesStayInF16UntilTheySettle) {
  auto store = make_quantised(kShape, 40, 100);
  const SequenceId seq = store->create_sequence();
  ThreadExecutor executor(2);
  append_layer(*store, seq, 1, 0, 100);
  EXPECT_EQ(store->view(seq, 1, 0).n_body(), 0) << "attention sees the batch in f16";
  store->settle(seq, 1, 2, executor);
  EXPECT_EQ(store->view(seq, 1, 0).n_body(), 64);
  expect_ids(*store, seq, 1, 0, run_of_ids(0, 100));
  append_layer(*store, seq, 1, 100, 7);
  store->settle(seq, 1, 2, executor);
  EXPECT_EQ(store->view(seq, 1, 0).n_body(), 64) << "43 rows are less than the window and a block";
  expect_ids(*store, seq, 1, 0, run_of_ids(0, 107));
  EXPECT_EQ(store->check_invariants(), "");
}

TEST(Tail, NotesTravelWithTheRow) {
  auto store = make_quantised(kShape, 40, 64);
  const SequenceId seq = store->create_sequence();
  SerialExecutor executor;
  append_layer(*store, seq, 0, 0, 60);
  std::vector<float> scores(60);
  std::vector<uint8_t> flags(60);
  for (size_t i = 0; i < 60; ++i) {
    scores[i] = static_cast<float>(i) + 0.5F;
    flags[i] = static_cast<uint8_t>(i);
  }
  store->set_scores(seq, 0, 0, scores);
  store->set_flags(seq, 0, 0, flags);
  store->settle(seq, 0, 1, executor);
  ASSERT_EQ(store->view(seq, 0, 0).n_body(), 16);
  for (const int32_t row : {0, 15, 16, 59}) {
    EXPECT_EQ(store->score(seq, 0, 0, row), static_cast<float>(row) + 0.5F);
    EXPECT_EQ(store->flags(seq, 0, 0, row), row);
  }
}

TEST(Tail, CompactionMovesBytesOnBothSidesOfTheBorder) {
  auto store = make_quantised(kShape, 40, 112);
  const SequenceId seq = store->create_sequence();
  SerialExecutor executor;
  append_layer(*store, seq, 0, 0, 110);
  store->settle(seq, 0, 1, executor);
  ASSERT_EQ(store->view(seq, 0, 0).n_body(), 64);
  std::vector<uint32_t> kept = {0, 3, 17, 40, 63, 64, 70, 109};
  ASSERT_TRUE(store->compact(seq, {.heads = {{0, 0, {kept.begin(), kept.end()}}}}, executor).ok());
  EXPECT_EQ(store->view(seq, 0, 0).n_body(), 5);
  EXPECT_EQ(store->view(seq, 0, 0).n_tail, 3);
  expect_ids(*store, seq, 0, 0, kept);
  // Later rows settle behind a body that ends within a block.
  append_layer(*store, seq, 0, 110, 60);
  store->settle(seq, 0, 1, executor);
  for (uint32_t id = 110; id < 170; ++id)
    kept.push_back(id);
  EXPECT_EQ(store->view(seq, 0, 0).n_body(), 5 + 16);
  expect_ids(*store, seq, 0, 0, kept);
  EXPECT_EQ(store->stats().evicted_rows, 102);
  EXPECT_EQ(store->check_invariants(), "");
}

TEST(Tail, AForkKeepsRecentRowsInF16) {
  auto store = make_quantised(kShape, 60, 64);
  SerialExecutor executor;
  const SequenceId seq = store->create_sequence();
  append_layer(*store, seq, 0, 0, 90);
  store->settle(seq, 0, 1, executor);
  const SequenceId mark = store->fork_sequence(seq);
  append_layer(*store, seq, 0, 90, 50);
  store->settle(seq, 0, 1, executor);
  expect_ids(*store, seq, 0, 0, run_of_ids(0, 140));
  expect_ids(*store, mark, 0, 0, run_of_ids(0, 90));
  EXPECT_EQ(store->view(mark, 0, 0).n_body(), 48);
  store->truncate(seq, 60);
  EXPECT_EQ(store->view(seq, 0, 0).n_tail, 0) << "a rewind finds them quantised";
  expect_ids(*store, seq, 0, 0, run_of_ids(0, 60));
  expect_ids(*store, mark, 0, 0, run_of_ids(0, 90));
  store->drop_sequence(seq);
  store->drop_sequence(mark);
  EXPECT_EQ(store->stats().live_bytes, 0);
  EXPECT_EQ(store->check_invariants(), "");
}

TEST(Tail, CopyRowsTakesBothParts) {
  auto from = make_quantised(kShape, 40, 96);
  auto to = make_quantised(kShape, 40, 96);
  SerialExecutor executor;
  const SequenceId source = from->create_sequence();
  const SequenceId target = to->create_sequence();
  append_layer(*from, source, 1, 0, 90);
  from->settle(source, 1, 2, executor);
  ASSERT_TRUE(to->reserve(target, 1, 2, 90).ok());
  ASSERT_TRUE(to->open_tail(target, 1, 2, from->view(source, 1, 1).n_tail).ok());
  to->copy_rows(target, 1, 1, from->view(source, 1, 1));
  EXPECT_EQ(to->view(target, 1, 1).n_body(), 48);
  expect_ids(*to, target, 1, 1, run_of_ids(0, 90));
}

TEST(Tail, OneBudgetForBothPoolsAndTheArithmetic) {
  auto store = Store::create(kShape, 3 * block_bytes_total(kShape) + 2 * tail_block_bytes(kShape));
  ASSERT_TRUE(store.ok());
  const SequenceId seq = (*store)->create_sequence();
  ASSERT_TRUE((*store)->reserve(seq, 0, 1, 16).ok());  // two heads
  ASSERT_TRUE((*store)->open_tail(seq, 0, 1, 16).ok());
  EXPECT_EQ((*store)->stats().live_bytes, 2 * block_bytes_total(kShape) + 2 * tail_block_bytes(kShape));
  const Status refused = (*store)->open_tail(seq, 1, 2, 1);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::budget_impossible);
  EXPECT_THAT(refused.error().message, HasSubstr(std::to_string(2 * tail_block_bytes(kShape)) + " bytes needed, " +
                                                 std::to_string(block_bytes_total(kShape)) + " free"));
  EXPECT_FALSE((*store)->reserve(seq, 1, 2, 1).ok()) << "two heads, room for one block";
  EXPECT_EQ((*store)->stats().free_blocks, 1);
  EXPECT_EQ((*store)->check_invariants(), "");
}

TEST(Tail, BytesKeptForTailsAreNotTakenByTheBody) {
  StoreShape shape = kShape;
  shape.kept_for_tails = tail_bytes(shape, 16);
  auto store = Store::create(shape, 8 * block_bytes_total(shape) + shape.kept_for_tails);
  ASSERT_TRUE(store.ok());
  const SequenceId seq = (*store)->create_sequence();
  EXPECT_EQ((*store)->stats().free_blocks, 8);
  EXPECT_FALSE((*store)->reserve(seq, 0, 2, 33).ok()) << "12 blocks";
  ASSERT_TRUE((*store)->reserve(seq, 0, 2, 32).ok());
  EXPECT_EQ((*store)->stats().free_blocks, 0);
  EXPECT_TRUE((*store)->open_tail(seq, 0, 2, 32).ok());
  EXPECT_TRUE((*store)->open_tail(seq, 1, 2, 32 + 16 + 16).ok());
  EXPECT_EQ((*store)->check_invariants(), "");
}

TEST(Tail, BytesOfBlocks) {
  const StoreShape q4{.n_layers = 30, .n_kv_heads = 3, .head_dim = 64, .type = RowType::q4};
  EXPECT_EQ(block_bytes_total(q4), 64 * 16 / 2 * 2 + 2 * 32 + 144 + 13);
  EXPECT_EQ(tail_block_bytes(q4), 64 * 16 * 2 * 2 + 144 + 13);
  // Windows of two blocks and one that fills, in 30 layers; a batch of 512 rows in one.
  EXPECT_EQ(tail_bytes(q4, 512), (30 * 3 + 32) * 3 * tail_block_bytes(q4));
  EXPECT_EQ(tail_bytes({.n_layers = 30, .n_kv_heads = 3, .head_dim = 64, .type = RowType::bf16}, 512), 0);
}

// Random operations of a few sequences beside plain vectors of ids.
TEST(Tail, RandomOperationsEqualPlainVectors) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    StoreShape shape = kShape;
    shape.f16_window = static_cast<int>(random() % 3) * 16;
    shape.type = seed % 2 == 0 ? RowTypes(RowType::q4) : RowTypes(RowType::f16, RowType::q8);
    auto store = make_quantised(shape, 400, 400);
    SerialExecutor executor;
    std::map<SequenceId, std::vector<uint32_t>> ids;  // of layer 0, head 0; positions are ids
    ids[store->create_sequence()] = {};
    uint32_t next = 0;
    for (int step = 0; step < 40; ++step) {
      auto it = ids.begin();
      std::advance(it, static_cast<long>(random() % ids.size()));
      const SequenceId seq = it->first;
      std::vector<uint32_t>& mine = it->second;
      switch (random() % 8) {
        case 0:
          if (ids.size() < 3)
            ids[store->fork_sequence(seq)] = mine;
          break;
        case 1: {
          const auto n_tokens = static_cast<int32_t>(random() % (next + 1));
          store->truncate(seq, n_tokens);
          std::erase_if(mine, [&](uint32_t id) { return id >= static_cast<uint32_t>(n_tokens); });
          break;
        }
        case 2: {
          KeepList keep;
          std::vector<uint32_t> kept;
          for (size_t row = 0; row < mine.size(); ++row) {
            if (random() % 3 != 0)
              continue;
            keep.rows.push_back(static_cast<int32_t>(row));
            kept.push_back(mine[row]);
          }
          ASSERT_TRUE(store->compact(seq, {.heads = {keep}}, executor).ok());
          mine = kept;
          break;
        }
        default: {
          const int n = 1 + static_cast<int>(random() % 50);
          append_layer(*store, seq, 0, next, n);
          for (int i = 0; i < n; ++i)
            mine.push_back(next++);
          store->settle(seq, 0, 1, executor);
          break;
        }
      }
      ASSERT_EQ(store->check_invariants(), "") << "seed " << seed << " step " << step;
      for (const auto& [other, rows] : ids)
        ASSERT_NO_FATAL_FAILURE(expect_ids(*store, other, 0, 0, rows)) << "seed " << seed << " step " << step;
    }
  }
}

}  // namespace
}  // namespace kedge::kv
