#include <gtest/gtest.h>

#include "kernels/head_for_tests.h"

namespace kedge {
namespace {

// Queries in a [t][head][d] array as a model's would lie: rows of `group` heads plus one head that is not ours.
struct Tile {
  Tile(int n_queries, int group, int d, std::vector<int32_t> query_positions)
      : q(random_floats(static_cast<size_t>(n_queries * (group + 1) * d), 31)),
        positions(std::move(query_positions)),
        queries{.q = q.data(),
                .row_stride = (group + 1L) * d,
                .head_stride = d,
                .positions = positions.data(),
                .n_queries = n_queries,
                .group = group,
                .scale = 1 / std::sqrt(static_cast<float>(d))},
        head_dim(d) {}

  std::vector<float> attend(const AttentionKernels& kernels, const KvHeadView& rows) const {
    std::vector<float> y(q.size(), 0.0F);
    const auto floats = static_cast<size_t>(tile_scratch_floats(queries.n_queries, queries.group, head_dim));
    std::vector<float> scratch(floats + 16 + 8, NAN);  // eight floats behind it must stay untouched
    float* aligned = scratch.data();
    while (reinterpret_cast<uintptr_t>(aligned) % 64 != 0)
      ++aligned;
    for (size_t i = 0; i < 8; ++i)
      aligned[floats + i] = 12345;
    const TileOutput out = {.y = y.data(), .row_stride = queries.row_stride, .head_stride = queries.head_stride};
    kernels.attend_tile(rows, queries, out, aligned);
    for (size_t i = 0; i < 8; ++i)
      EXPECT_EQ(aligned[floats + i], 12345) << "wrote behind the scratch";
    return y;
  }

  std::vector<float> q;
  std::vector<int32_t> positions;
  TileQueries queries;
  int head_dim;
};

std::vector<int32_t> positions_from(int first, int n) {
  std::vector<int32_t> out(static_cast<size_t>(n));
  std::iota(out.begin(), out.end(), first);
  return out;
}

// f32 math: rounding only. bf16 dots: queries and weights carry 8 bits, so an output is off by up to about 2 % of the
// largest value where few rows share the weight; the mean over a tile is far smaller (checked in its own test).
double tolerance(const AttentionKernels& kernels, RowTypes type) {
  return type == RowType::bf16 && std::string(kernels.name) == "avx512bf16" ? 4e-2 : 1e-5;
}

void expect_agreement(const Tile& tile, const KvHeadView& rows) {
  const std::vector<float> want = tile.attend(ref_kernels(), rows);
  for (const AttentionKernels* kernels : fast_kernels()) {
    ASSERT_LE(max_difference(tile.attend(*kernels, rows), want), tolerance(*kernels, rows.type))
        << kernels->name << " d " << rows.head_dim << " rows " << rows.n_rows << " group " << tile.queries.group
        << " queries " << tile.queries.n_queries << " from " << tile.positions[0];
  }
}

class Prefill : public testing::TestWithParam<std::tuple<RowTypes, int>> {};

TEST_P(Prefill, AgreesWithTheOracleForEveryTail) {
  const auto [type, d] = GetParam();
  for (int n_rows = 0; n_rows <= 131; ++n_rows) {
    const int group = 1 + n_rows % 8;
    const TestHead head({.type = type, .head_dim = d, .n_rows = n_rows, .position_gap = 1 + n_rows % 3});
    const int n_queries = 1 + n_rows % 9;
    // The last query stands before, at and behind the last row in turn.
    const int first = std::max(0, head.last_position() - n_queries - 3 + n_rows % 7);
    expect_agreement(Tile(n_queries, group, d, positions_from(first, n_queries)), head.view());
    if (HasFatalFailure())
      return;
  }
}

TEST_P(Prefill, AgreesWithTheOracleForEveryGroup) {
  const auto [type, d] = GetParam();
  for (int group = 1; group <= 16; ++group) {
    const int n_rows = 200 + group;
    const TestHead head({.type = type, .head_dim = d, .n_rows = n_rows, .seed = 9});
    const int n_queries = group <= 3 ? kTileQueries : 11;
    expect_agreement(Tile(n_queries, group, d, positions_from(n_rows - n_queries, n_queries)), head.view());
    if (HasFatalFailure())
      return;
  }
}

TEST_P(Prefill, PoisonBeyondTheLastRowChangesNothing) {
  const auto [type, d] = GetParam();
  for (const int n_rows : {1, 2, 15, 17, 47, 65, 127}) {
    const Tile tile(5, 3, d, positions_from(std::max(0, n_rows - 3), 5));
    for (const AttentionKernels* kernels : fast_kernels()) {
      std::vector<std::vector<float>> results;
      for (const Poison poison : {Poison::zero, Poison::nan, Poison::huge}) {
        const TestHead head({.type = type, .head_dim = d, .n_rows = n_rows, .poison = poison});
        results.push_back(tile.attend(*kernels, head.view()));
      }
      EXPECT_EQ(results[0], results[1]) << kernels->name << " NaN, rows " << n_rows;
      EXPECT_EQ(results[0], results[2]) << kernels->name << " huge, rows " << n_rows;
    }
  }
}

TEST_P(Prefill, AQueryThatSeesNothingGivesZeros) {
  const auto [type, d] = GetParam();
  const TestHead head({.type = type, .head_dim = d, .n_rows = 40});  // positions 1..40
  const Tile tile(3, 2, d, {-5, 0, 1});
  for (const AttentionKernels* kernels : fast_kernels()) {
    const std::vector<float> y = tile.attend(*kernels, head.view());
    const auto blind = std::span(y).first(static_cast<size_t>(2 * 3 * d));
    EXPECT_TRUE(std::all_of(blind.begin(), blind.end(), [](float x) { return x == 0; })) << kernels->name;
    std::vector<float> v(static_cast<size_t>(d));
    read_rows(head.view(), 0, 1, nullptr, v.data());
    EXPECT_LE(max_difference(std::span(y).subspan(static_cast<size_t>(2 * 3 * d), v.size()), v), 1e-6)
        << "one visible row: its value";
  }
}

TEST_P(Prefill, AnyCutIntoTilesGivesTheSameBits) {
  const auto [type, d] = GetParam();
  const TestHead head({.type = type, .head_dim = d, .n_rows = 150, .position_gap = 3});
  constexpr int kQueries = 13;
  const Tile whole(kQueries, 3, d, positions_from(head.last_position() - kQueries, kQueries));
  const auto query_floats = static_cast<size_t>(whole.queries.row_stride);
  for (const AttentionKernels* kernels : fast_kernels()) {
    const std::vector<float> y = whole.attend(*kernels, head.view());
    for (const int cut : {1, 4, 9}) {
      std::vector<float> pieces;
      for (const auto& [begin, end] : {std::pair{0, cut}, {cut, kQueries}}) {
        Tile piece(end - begin, 3, d, positions_from(whole.positions[static_cast<size_t>(begin)], end - begin));
        piece.queries.q = whole.q.data() + begin * whole.queries.row_stride;
        const std::vector<float> part = piece.attend(*kernels, head.view());
        pieces.insert(pieces.end(), part.begin(), part.begin() + static_cast<long>(query_floats) * (end - begin));
      }
      EXPECT_EQ(pieces, y) << kernels->name << " cut at " << cut;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Prefill,
                         testing::Combine(testing::ValuesIn(all_types()), testing::Values(64, 80, 96, 128, 256)));

TEST(PrefillPrecision, Bf16DotsAreOffByThousandthsOnAverage) {
  const AttentionKernels* kernels = attention_kernels("avx512bf16");
  if (kernels == nullptr)
    GTEST_SKIP() << "no bf16 dot products here";
  const TestHead head({.type = RowType::bf16, .n_rows = 700});
  const Tile tile(kTileQueries, 3, 64, positions_from(640, kTileQueries));
  const std::vector<float> got = tile.attend(*kernels, head.view());
  const std::vector<float> want = tile.attend(ref_kernels(), head.view());
  double error = 0;
  double size = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    error += std::pow(static_cast<double>(got[i]) - static_cast<double>(want[i]), 2);
    size += std::pow(static_cast<double>(want[i]), 2);
  }
  EXPECT_LE(std::sqrt(error / size), 4e-3);
  EXPECT_GT(error, 0) << "not the kernel this test is about";
}

}  // namespace
}  // namespace kedge
