#include <gtest/gtest.h>

#include "kernels/head_for_tests.h"

namespace kedge {
namespace {

class Scoring : public testing::TestWithParam<std::tuple<RowTypes, int>> {};

struct Window {
  Window(int n_queries, int group, int d, int first_position)
      : q(random_floats(static_cast<size_t>(n_queries * group * d), 51)), positions(static_cast<size_t>(n_queries)) {
    std::iota(positions.begin(), positions.end(), first_position);
    queries = {.q = q.data(),
               .row_stride = static_cast<long>(group) * d,
               .head_stride = d,
               .positions = positions.data(),
               .n_queries = n_queries,
               .group = group,
               .scale = 1 / std::sqrt(static_cast<float>(d))};
  }
  std::vector<float> weights(const AttentionKernels& kernels, const KvHeadView& rows) const {
    const auto n = static_cast<size_t>(queries.n_queries * queries.group);
    std::vector<float> out(n * static_cast<size_t>(rows.n_rows), NAN);
    kernels.attention_weights(rows, queries, out.data());
    return out;
  }
  std::vector<float> q;
  std::vector<int32_t> positions;
  TileQueries queries{};
};

TEST_P(Scoring, WeightsAgreeWithTheOracleAndSumToOne) {
  const auto [type, d] = GetParam();
  for (int n_rows = 0; n_rows <= 131; n_rows += n_rows < 66 ? 1 : 5) {
    const int group = 1 + n_rows % 8;
    const TestHead head({.type = type, .head_dim = d, .n_rows = n_rows, .position_gap = 2});
    const Window window(1 + n_rows % 5, group, d, std::max(1, head.last_position() - n_rows % 6));
    const std::vector<float> want = window.weights(ref_kernels(), head.view());
    for (const AttentionKernels* kernels : fast_kernels()) {
      const std::vector<float> got = window.weights(*kernels, head.view());
      ASSERT_LE(max_difference(got, want), 2e-6) << kernels->name << " rows " << n_rows;
      for (size_t i = 0; n_rows > 0 && i < got.size(); i += static_cast<size_t>(n_rows)) {
        const double sum =
            std::accumulate(got.begin() + static_cast<long>(i), got.begin() + static_cast<long>(i) + n_rows, 0.0);
        const bool blind = head.view().position(0) > window.positions[i / static_cast<size_t>(n_rows * group)];
        ASSERT_NEAR(sum, blind ? 0.0 : 1.0, 1e-5) << kernels->name;
      }
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_EQ(got[i] == 0, want[i] == 0) << "mask";
    }
  }
}

TEST_P(Scoring, AWindowOfABigHead) {
  const auto [type, d] = GetParam();
  const TestHead head({.type = type, .head_dim = d, .n_rows = 300, .poison = Poison::huge});
  const Window window(32, 3, d, 269);
  const std::vector<float> want = window.weights(ref_kernels(), head.view());
  for (const AttentionKernels* kernels : fast_kernels()) {
    EXPECT_LE(max_difference(window.weights(*kernels, head.view()), want), 2e-6) << kernels->name;
  }
}

TEST_P(Scoring, AnchorScoresAgreeWithPlainDoubles) {
  const auto [type, d] = GetParam();
  for (const int n_rows : {1, 15, 16, 33, 64, 65, 100, 131}) {
    for (const int n : {0, 1, 3, 64, 96, 130}) {
      const TestHead head({.type = type, .head_dim = d, .n_rows = n_rows});
      const auto size = static_cast<size_t>(n_rows);
      const std::vector<float> a = random_floats(static_cast<size_t>(n) * size + 1, 71);
      const std::vector<float> y = random_floats(static_cast<size_t>(n * d) + 1, 72);
      std::vector<float> v(size * static_cast<size_t>(d));
      read_rows(head.view(), 0, n_rows, nullptr, v.data());
      for (const AttentionKernels* kernels : fast_kernels()) {
        std::vector<float> score(size, 0.5F);  // added to, not overwritten
        kernels->anchor_scores(head.view(), a.data(), y.data(), n, score.data());
        for (size_t i = 0; i < size; ++i) {
          double want = 0.5;
          double terms = 0;
          for (size_t m = 0; m < static_cast<size_t>(n); ++m) {
            for (size_t j = 0; j < static_cast<size_t>(d); ++j) {
              const double term = static_cast<double>(a[m * size + i]) *
                                  static_cast<double>(y[m * static_cast<size_t>(d) + j]) *
                                  static_cast<double>(v[i * static_cast<size_t>(d) + j]);
              want += term;
              terms += std::fabs(term);
            }
          }
          ASSERT_NEAR(score[i], want, 1e-6 * terms + 1e-7) << kernels->name << " rows " << n_rows << " n " << n;
        }
      }
    }
  }
}

TEST_P(Scoring, TheOracleOfAnchorScoresIsTheSameSum) {
  const auto [type, d] = GetParam();
  const TestHead head({.type = type, .head_dim = d, .n_rows = 37});
  const std::vector<float> a = random_floats(5 * 37, 1);
  const std::vector<float> y = random_floats(static_cast<size_t>(5 * d), 2);
  std::vector<float> want(37, 0.0F);
  ref_kernels().anchor_scores(head.view(), a.data(), y.data(), 5, want.data());
  for (const AttentionKernels* kernels : fast_kernels()) {
    std::vector<float> got(37, 0.0F);
    kernels->anchor_scores(head.view(), a.data(), y.data(), 5, got.data());
    EXPECT_LE(max_difference(got, want), 1e-3) << kernels->name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Scoring,
                         testing::Combine(testing::ValuesIn(all_types()), testing::Values(64, 80, 96, 128, 256)));

// sum over rows of the score = sum over queries of |y|^2 when y is the attention output itself (ALGORITHMS: AnDPro).
TEST(AnchorScores, SumToTheEnergyOfTheOutputs) {
  const TestHead head({.n_rows = 500});
  const Window window(32, 3, 64, 469);
  for (const AttentionKernels* kernels : fast_kernels()) {
    const std::vector<float> a = window.weights(*kernels, head.view());
    std::vector<float> v(500 * 64);
    read_rows(head.view(), 0, 500, nullptr, v.data());
    std::vector<float> y(96 * 64, 0.0F);
    double energy = 0;
    for (size_t m = 0; m < 96; ++m) {
      for (size_t j = 0; j < 64; ++j) {
        double sum = 0;
        for (size_t i = 0; i < 500; ++i) {
          sum += static_cast<double>(a[m * 500 + i]) * static_cast<double>(v[i * 64 + j]);
        }
        y[m * 64 + j] = static_cast<float>(sum);
        energy += sum * sum;
      }
    }
    std::vector<float> score(500, 0.0F);
    kernels->anchor_scores(head.view(), a.data(), y.data(), 96, score.data());
    EXPECT_NEAR(std::accumulate(score.begin(), score.end(), 0.0), energy, 1e-4 * energy) << kernels->name;
  }
}

}  // namespace
}  // namespace kedge
