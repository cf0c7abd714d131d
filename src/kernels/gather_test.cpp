#include "kernels/gather.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "kernels/head_for_tests.h"

namespace kedge {
namespace {

using Bytes = std::vector<std::byte>;

Bytes random_bytes(size_t n, std::mt19937& random) {
  Bytes bytes(n);
  for (std::byte& byte : bytes)
    byte = static_cast<std::byte>(random());
  return bytes;
}

// Every set that this CPU runs against the plain one: any slots from any of two blocks, or ascending ones in place.
TEST(LineMovers, DoWhatThePlainOneDoes) {
  std::mt19937 random(1);
  for (const char* name : {"avx2", "avx512"}) {
    const LineMovers* movers = line_movers(name);
    if (movers == nullptr)
      continue;
    for (int round = 0; round < 500; ++round) {
      const int n_lines = 1 + static_cast<int>(random() % 9);
      const Bytes a = random_bytes(static_cast<size_t>(n_lines) * 64, random);
      const Bytes b = random_bytes(a.size(), random);
      const Bytes other = random_bytes(a.size(), random);
      const bool in_place = round % 2 == 0;
      LineMove move{.dst = nullptr, .a = nullptr, .b = b.data(), .from = {}, .written = 0};
      for (uint32_t slot = 0; slot < kBlockRows; ++slot) {
        move.from[slot] = static_cast<uint8_t>(in_place ? slot + random() % (kBlockRows - slot) : random() % 16);
        if (random() % 3 == 0)
          move.from[slot] = static_cast<uint8_t>(16 + random() % 16);
        move.written |= static_cast<uint32_t>(random() % 4 != 0) << slot;
      }
      for (const bool words : {false, true}) {
        const auto moved = [&](const LineMovers& with) {
          Bytes to = in_place ? a : other;
          LineMove here = move;
          here.dst = to.data();
          here.a = in_place ? to.data() : a.data();
          (words ? with.words : with.halves)(here, n_lines);
          return to;
        };
        ASSERT_EQ(moved(*movers), moved(*line_movers("plain"))) << name << " round " << round << " words " << words;
      }
    }
  }
  EXPECT_EQ(line_movers("none"), nullptr);
  EXPECT_STREQ(best_line_movers().name, line_movers(best_line_movers().name)->name);
}

class Gather : public testing::TestWithParam<std::tuple<RowTypes, int>> {};

// A compaction of five blocks in place: as copy_row() moves the rows one by one.
TEST_P(Gather, MovesRowsAsCopyRowDoes) {
  const auto [type, d] = GetParam();
  const size_t block_bytes = block_layout(d, type).bytes;
  std::mt19937 random(2);
  for (const uint32_t keep_of_8 : {1U, 4U, 7U}) {
    const Bytes before = random_bytes(5 * block_bytes, random);
    Bytes want = before;
    Bytes got = before;
    std::vector<int> kept;
    for (int row = 0; row < 5 * kBlockRows; ++row) {
      if (random() % 8 < keep_of_8)
        kept.push_back(row);
    }
    const auto block = [&](Bytes& bytes, int row) {
      return bytes.data() + static_cast<size_t>(row / kBlockRows) * block_bytes;
    };
    for (size_t i = 0; i < kept.size(); ++i) {
      copy_row(block(want, static_cast<int>(i)), static_cast<int>(i) % kBlockRows, block(want, kept[i]),
               kept[i] % kBlockRows, d, type);
    }
    // The first rows are there already: from the first that moves on, as a store does.
    int row = 0;
    while (row < static_cast<int>(kept.size()) && kept[static_cast<size_t>(row)] == row)
      ++row;
    while (row < static_cast<int>(kept.size())) {
      const int end = std::min<int>((row / kBlockRows + 1) * kBlockRows, static_cast<int>(kept.size()));
      std::vector<RowSource> sources;
      for (int i = row; i < end; ++i) {
        const int from = kept[static_cast<size_t>(i)];
        sources.push_back({.block = block(got, from), .slot = from % kBlockRows});
      }
      gather_keys(block(got, row), row % kBlockRows, sources, d, type);
      gather_values(block(got, row), row % kBlockRows, sources, d, type);
      row = end;
    }
    ASSERT_EQ(got, want) << "keep " << keep_of_8;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Gather,
                         testing::Combine(testing::ValuesIn(all_types()), testing::Values(16, 64, 80, 96, 128, 256)));

}  // namespace
}  // namespace kedge
