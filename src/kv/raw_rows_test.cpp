#include <cmath>
#include <cstring>
#include <limits>

#include "kv/store_test_support.h"

namespace kedge::kv {
namespace {

using test::append_run;
using test::make_store;

class RawRows : public testing::TestWithParam<RowTypes> {
 protected:
  StoreShape shape() const {
    return {.n_layers = 2, .n_kv_heads = 2, .head_dim = 32, .type = GetParam(), .f16_window = 16, .n_notes = 2};
  }

  // A head of n rows whose positions have gaps, with notes.
  std::unique_ptr<Store> store_with(int n, SequenceId& seq) const {
    auto store = make_store(shape(), 300);
    seq = store->create_sequence();
    EXPECT_TRUE(store->reserve(seq, 0, 2, 2 * n + 1).ok());
    EXPECT_TRUE(store->open_tail(seq, 1, 2, 2 * n + 1).ok());
    append_run(*store, seq, 1, 0, 5, 2 * n);
    SerialExecutor executor;
    store->settle(seq, 1, 2, executor);
    KeepList keep{.layer = 1, .head = 0};
    for (int i = 0; i < n; ++i)
      keep.rows.push_back(2 * i + 1);
    EXPECT_TRUE(store->compact(seq, {.heads = {keep}}, executor).ok());
    std::vector<float> scores;
    std::vector<uint8_t> flags;
    for (int i = 0; i < n; ++i) {
      scores.push_back(static_cast<float>(i) / 4);
      flags.push_back(static_cast<uint8_t>(i % 3));
    }
    store->set_scores(seq, 1, 0, scores);
    for (float& note : scores)
      note = 100 - note;
    store->set_notes(seq, 1, 0, 1, scores);
    store->set_flags(seq, 1, 0, flags);
    return store;
  }
  static std::vector<std::byte> bytes_of(const Store& store, SequenceId seq, int layer, int head) {
    std::vector<std::byte> bytes;
    store.export_rows(seq, layer, head, bytes);
    return bytes;
  }
};

TEST_P(RawRows, ComeBackBitForBitAtEveryLength) {
  for (int n = 0; n <= 35; ++n) {
    SequenceId from = 0;
    const auto store = store_with(n, from);
    const std::vector<std::byte> bytes = bytes_of(*store, from, 1, 0);
    // 16 bytes, 13 a row, and blocks of 16 rows of K and V of 32 two-byte values.
    if (!GetParam().quantised()) {
      EXPECT_EQ(bytes.size(),
                16U + 13U * static_cast<size_t>(n) + static_cast<size_t>((n + 15) / 16) * 16 * 2 * 32 * 2);
    }
    const auto other = make_store(shape(), 12);
    const SequenceId to = other->create_sequence();
    const Status status = other->import_rows(to, 0, 1, bytes, 5 + 2 * n);
    ASSERT_TRUE(status.ok()) << n << ": " << status.error().message;
    EXPECT_EQ(bytes_of(*other, to, 0, 1), bytes) << n;
    EXPECT_EQ(other->check_invariants(), "") << n;
    const KvHeadView a = store->view(from, 1, 0);
    const KvHeadView b = other->view(to, 0, 1);
    ASSERT_EQ(b.n_rows, n);
    std::vector<float> k(32 * 2), v(32 * 2);
    for (int row = 0; row < n; ++row) {
      EXPECT_EQ(b.position(row), 6 + 2 * row);
      EXPECT_EQ(other->score(to, 0, 1, row), static_cast<float>(row) / 4);
      EXPECT_EQ(other->flags(to, 0, 1, row), row % 3);
      EXPECT_EQ(other->notes(to, 0, 1, 1)[static_cast<size_t>(row)], 100 - static_cast<float>(row) / 4);
      read_rows(a, row, row + 1, k.data(), v.data());
      read_rows(b, row, row + 1, k.data() + 32, v.data() + 32);
      EXPECT_TRUE(std::equal(k.begin(), k.begin() + 32, k.begin() + 32));
      EXPECT_TRUE(std::equal(v.begin(), v.begin() + 32, v.begin() + 32));
    }
  }
}

TEST_P(RawRows, AreNoLongerThanTheirRowsSay) {
  SequenceId from = 0;
  const auto store = store_with(21, from);
  const std::vector<std::byte> bytes = bytes_of(*store, from, 1, 0);
  const auto other = make_store(shape(), 12);
  const SequenceId to = other->create_sequence();
  const auto why = [&](std::vector<std::byte> damaged, int64_t n_tokens = 47) {
    const Status status = other->import_rows(to, 0, 1, damaged, n_tokens);
    EXPECT_EQ(other->n_rows(to, 0, 1), 0);
    EXPECT_EQ(other->check_invariants(), "");
    return status.ok() ? std::string() : status.error().message;
  };
  for (size_t n = 0; n < bytes.size(); n += n < 300 ? 1 : 97)
    EXPECT_NE(why({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n)}), "") << n;
  std::vector<std::byte> longer = bytes;
  longer.push_back({});
  EXPECT_NE(why(longer), "");
  EXPECT_NE(why(bytes, 46).find("found 46, allowed 45..45"), std::string::npos) << why(bytes, 46);
  const auto with = [&](size_t at, auto value) {
    std::vector<std::byte> damaged = bytes;
    std::memcpy(damaged.data() + at, &value, sizeof value);
    return why(damaged);
  };
  EXPECT_NE(with(0, uint32_t{0x0102}).find("row type: found q8_0 K with bf16 V, allowed "), std::string::npos);
  EXPECT_NE(with(4, uint32_t{1}).find("notes of a row: found 1, allowed 2"), std::string::npos);
  EXPECT_NE(with(0, uint32_t{77}).find("found type 77"), std::string::npos);
  EXPECT_NE(with(8, uint32_t{0xFFFFFFFF}).find("n_rows: found 42949"), std::string::npos);
  EXPECT_NE(with(16, int32_t{-1}).find("found -1, allowed 0.."), std::string::npos);
  EXPECT_NE(with(20, int32_t{6}).find("row 1: found 6, allowed 7.."), std::string::npos);
  EXPECT_NE(with(16 + 21 * 4 + 4 * 23, std::numeric_limits<float>::infinity()).find("note 1 of row 2"),
            std::string::npos);
  if (!GetParam().quantised()) {
    EXPECT_NE(with(bytes.size() - 2, uint16_t{0xFFFF}).find("finite"), std::string::npos);
    EXPECT_NE(with(12, uint32_t{3}).find("tail: found 3, allowed 0..0"), std::string::npos);
  }
  const auto small = make_store(shape(), 1);
  const SequenceId none = small->create_sequence();
  const Status full = small->import_rows(none, 0, 0, bytes, 47);
  ASSERT_FALSE(full.ok());
  EXPECT_EQ(full.error().code, ErrorCode::budget_impossible);
  EXPECT_NE(full.error().message.find("blocks of"), std::string::npos) << full.error().message;
  EXPECT_EQ(small->check_invariants(), "");
}

// 21 rows: two blocks, the second partly filled.
TEST(LayerBlocks, AreCountedByOwner) {
  const auto store = make_store({.n_layers = 2, .n_kv_heads = 2, .head_dim = 32}, 20);
  const SequenceId seq = store->create_sequence();
  ASSERT_TRUE(store->reserve(seq, 1, 2, 21).ok());
  append_run(*store, seq, 1, 0, 0, 21);
  store->release_reserved(seq);
  const auto expect = [&](SequenceId of, int64_t own, int64_t shared, int64_t missing) {
    const Store::LayerBlocks blocks = store->layer_blocks(of, 1, 12);
    EXPECT_EQ(blocks.own, own);
    EXPECT_EQ(blocks.shared, shared);
    EXPECT_EQ(blocks.missing, missing);
  };
  expect(seq, 2, 0, 2);  // 12 more rows: one more block here, one in the head that has none
  const SequenceId child = store->fork_sequence(seq);
  expect(seq, 0, 2, 3);  // and a copy of the last one
  expect(child, 0, 2, 3);
  ASSERT_TRUE(store->reserve(child, 1, 2, 12).ok());
  expect(child, 4 - 1, 1, 0);
  expect(seq, 1, 1, 2);
  store->share_rows(child, seq);
  expect(child, 0, 2, 3);
  EXPECT_EQ(store->check_invariants(), "");
  store->drop_sequence(child);
  expect(seq, 2, 0, 2);
}

INSTANTIATE_TEST_SUITE_P(Types, RawRows,
                         testing::Values(RowTypes(RowType::f16), RowTypes(RowType::bf16), RowTypes(RowType::q8),
                                         RowTypes(RowType::q4, RowType::q8), RowTypes(RowType::f16, RowType::q4)));

}  // namespace
}  // namespace kedge::kv
