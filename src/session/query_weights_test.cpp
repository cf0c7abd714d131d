#include "session/query_weights.h"

#include <gtest/gtest.h>

#include <numeric>

#include "session/echo.h"

namespace kedge::session {
namespace {

// A head of 40 body rows in blocks 5, 2, 7 and 20 newer ones in tail blocks 3, 1: positions 0, 2, 4, ..., 118.
struct Head {
  std::vector<int32_t> positions = std::vector<int32_t>(8 * kBlockRows, -1);
  std::vector<int32_t> tail_positions = std::vector<int32_t>(4 * kBlockRows, -1);
  std::vector<uint32_t> ids = {5, 2, 7};
  std::vector<uint32_t> tail_ids = {3, 1};
  KvHeadView view{};

  Head() {
    for (int row = 0; row < 40; ++row)
      positions[ids[row / kBlockRows] * kBlockRows + row % kBlockRows] = 2 * row;
    for (int row = 0; row < 20; ++row)
      tail_positions[tail_ids[row / kBlockRows] * kBlockRows + row % kBlockRows] = 80 + 2 * row;
    view.positions = positions.data();
    view.block_ids = ids.data();
    view.n_rows = 60;
    view.head_dim = 16;
    view.type = RowType::q8;
    view.tail_positions = tail_positions.data();
    view.tail_ids = tail_ids.data();
    view.n_tail = 20;
  }
};

// Every row of the smaller view is the head's row that it says it is.
void expect_same_rows(const KvHeadView& head, const SomeRows& some) {
  ASSERT_EQ(some.view.n_rows, static_cast<int32_t>(some.row.size()));
  ASSERT_EQ(some.weight.size(), some.row.size());
  for (int32_t i = 0; i < some.view.n_rows; ++i)
    EXPECT_EQ(some.view.position(i), head.position(some.row[static_cast<size_t>(i)])) << i;
}
std::vector<int32_t> counted_positions(const SomeRows& some) {
  std::vector<int32_t> out;
  for (size_t i = 0; i < some.row.size(); ++i) {
    if (some.weight[i] != 0)
      out.push_back(some.view.position(static_cast<int32_t>(i)));
  }
  return out;
}

TEST(SomeRows, AreWholeBlocksOfWhichSomeRowsCount) {
  const Head head;
  const SomeRows some(head.view, {.begin = 40, .end = 45, .n_sinks = 4});
  expect_same_rows(head.view, some);
  EXPECT_EQ(some.view.n_rows, 32) << "the sinks' block and that of rows 20..22";
  EXPECT_EQ(some.view.n_tail, 0);
  EXPECT_EQ(counted_positions(some), (std::vector<int32_t>{0, 2, 40, 42, 44}));
  EXPECT_EQ(some.first, 20);
}

TEST(SomeRows, ComeFromTheTailToo) {
  const Head head;
  const SomeRows newest(head.view, {.begin = 114, .end = 200, .n_sinks = 0});
  expect_same_rows(head.view, newest);
  EXPECT_EQ(newest.view.n_rows, 4) << "the tail's last block alone";
  EXPECT_EQ(newest.view.n_tail, 4);
  EXPECT_EQ(counted_positions(newest), (std::vector<int32_t>{114, 116, 118}));

  const SomeRows across(head.view, {.begin = 76, .end = 84, .n_sinks = 2});
  expect_same_rows(head.view, across);
  EXPECT_EQ(across.view.n_rows, 16 + 8 + 16);
  EXPECT_EQ(across.view.n_tail, 16);
  EXPECT_EQ(counted_positions(across), (std::vector<int32_t>{0, 76, 78, 80, 82}));
}

TEST(SomeRows, OfAProbeAreTheNewest) {
  const Head head;
  const SomeRows some(head.view, {.begin = 10, .end = 12, .n_sinks = 0, .probe = 116});
  expect_same_rows(head.view, some);
  EXPECT_EQ(counted_positions(some), (std::vector<int32_t>{10, 116, 118}));
}

// Rows 16..47 count: blocks 1 and 2 of the body, of which 2 is even, and half of the tail's block 0.
TEST(SomeRows, OfASampleStandForTheOthers) {
  const Head head;
  const SomeRows far(head.view, {.begin = 32, .end = 96, .n_sinks = 4, .every = 2});
  expect_same_rows(head.view, far);
  EXPECT_EQ(far.view.n_rows, 16 + 8 + 16) << "the sinks' block, the last of the body, the first of the tail";
  std::vector<float> expected(40, 0.0F);
  expected[0] = expected[1] = 1;
  std::fill_n(expected.begin() + 16, 8 + 8, 2.0F);
  EXPECT_EQ(far.weight, expected);

  const SomeRows near(head.view, {.begin = 32, .end = 96, .n_sinks = 4, .every = 2, .near_begin = 62, .near_end = 82});
  expect_same_rows(head.view, near);
  EXPECT_EQ(near.view.n_rows, 16 + 16 + 8 + 16) << "blocks of rows 31..40 are all there";
  expected.assign(56, 0.0F);
  expected[0] = expected[1] = 1;
  std::fill_n(expected.begin() + 16, 16 + 8 + 8, 1.0F);
  EXPECT_EQ(near.weight, expected);
  std::vector<float> a(56);
  std::iota(a.begin(), a.end(), 0.0F);
  EXPECT_EQ(near.sum(a), 0 + 1 + 32 * (16 + 47) / 2.0F);
}

TEST(BlocksOf, AreCutByPositionAlone) {
  std::vector<int32_t> positions(100);
  std::iota(positions.begin(), positions.end(), 60);
  std::vector<std::pair<size_t, size_t>> found;
  for (const Range& block : blocks_of(positions))
    found.emplace_back(block.begin, block.end);
  EXPECT_EQ(found, (std::vector<std::pair<size_t, size_t>>{{0, 4}, {4, 68}, {68, 100}}));
  EXPECT_TRUE(blocks_of({}).empty());
}

TEST(TilesOf, AreBlocksThatReadTheKeysTogether) {
  const std::vector<Range> blocks = {{0, 4}, {4, 8}, {8, 12}, {12, 16}, {16, 17}, {17, 81}, {81, 82}};
  std::vector<std::pair<size_t, size_t>> found;
  for (const Range& tile : tiles_of(blocks))
    found.emplace_back(tile.begin, tile.end);
  EXPECT_EQ(found, (std::vector<std::pair<size_t, size_t>>{{0, 4}, {4, 5}, {5, 6}, {6, 7}}));
  EXPECT_TRUE(tiles_of({}).empty());
}

TEST(Past, QueriesThinOutAndStandForThoseBefore) {
  int n_queries = 0;
  int32_t stands_for = 0;
  for (int32_t n_tokens = 0; n_tokens < 40000; ++n_tokens) {
    ASSERT_EQ(past_queries(0, n_tokens), stands_for) << n_tokens;
    ASSERT_EQ(past_queries(n_tokens / 2, n_tokens), stands_for - past_queries(0, n_tokens / 2)) << n_tokens;
    if (is_past_query(n_tokens)) {
      ++n_queries;
      stands_for += past_stride(n_tokens) / kPastStride;
      EXPECT_EQ(stands_for, (n_tokens + 1) / kPastStride) << "of all queries so far";
    }
  }
  EXPECT_EQ(past_stride(2047), 16);
  EXPECT_EQ(past_stride(2048), 32);
  EXPECT_EQ(past_stride(8192), 64);
  EXPECT_EQ(past_stride(32768), 128);
  EXPECT_EQ(n_queries, 2048 / 16 + 6144 / 32 + 24576 / 64 + 7232 / 128);
}

}  // namespace
}  // namespace kedge::session
