#include "eviction/exact_term.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "eviction/example.h"
#include "eviction/select.h"
#include "eviction/synthetic_heads.h"

namespace kedge::eviction {
namespace {

using testing::ElementsAre;

// In double, query by query: leave row i out, renormalise, and see how far the output moves.
double loss_without(const HeadInput& in, int32_t row) {
  const auto dim = static_cast<size_t>(in.rows.head_dim);
  const auto n = static_cast<size_t>(in.rows.n_rows);
  std::vector<float> k(n * dim);
  std::vector<float> v(n * dim);
  read_rows(in.rows, 0, in.rows.n_rows, k.data(), v.data());
  double loss = 0;
  for (int m = 0; m < in.n_window * in.group; ++m) {
    const float* q = in.q + static_cast<size_t>(m) * dim;
    std::vector<double> weight(n, 0.0);
    double total = 0;
    for (size_t i = 0; i < n; ++i) {
      if (in.rows.position(static_cast<int32_t>(i)) > in.query_positions[m / in.group])
        continue;
      weight[i] = std::exp(in.scale * std::inner_product(q, q + dim, &k[i * dim], 0.0));
      total += weight[i];
    }
    for (size_t j = 0; j < dim; ++j) {
      double with = 0;
      double without = 0;
      for (size_t i = 0; i < n; ++i) {
        with += weight[i] * v[i * dim + j] / total;
        if (i != static_cast<size_t>(row))
          without += weight[i] * v[i * dim + j] / (total - weight[static_cast<size_t>(row)]);
      }
      loss += (with - without) * (with - without);
    }
  }
  return loss;
}

TEST(ExactTerm, IsTheSquaredChangeOfTheOutputWithoutTheRow) {
  const ExampleHead example;
  const std::vector<int32_t> rows = {0, 1, 3, 4};
  std::vector<float> term(4);
  exact_terms(example.input(), rows, term);
  for (size_t j = 0; j < rows.size(); ++j)
    EXPECT_NEAR(term[j], loss_without(example.input(), rows[j]), 2e-3 * (1 + term[j])) << rows[j];
}

TEST(ExactTerm, OnRandomHeads) {
  SyntheticHead head({.n_rows = 70, .n_window = 9, .gap = 0.2});
  const HeadInput in = head.input();
  std::vector<int32_t> rows(70);
  std::iota(rows.begin(), rows.end(), 0);
  std::vector<float> term(70);
  exact_terms(in, rows, term);
  for (const int32_t row : {0, 5, 33, 69})
    EXPECT_NEAR(term[static_cast<size_t>(row)], loss_without(in, row), 1e-2 * (1e-3 + term[static_cast<size_t>(row)]));
}

// Row 3 is unseen by score but has a large value; row 2's loss is small.
TEST(Refine, RanksTheRowsNearTheThresholdAgain) {
  const ExampleHead example;
  std::vector<double> loss;
  for (int32_t row = 0; row < 6; ++row)
    loss.push_back(loss_without(example.input(), row));
  // The scores say 0 1 5 2 4 3, best first. Two rows stay; a margin of one row on each side is rows 1 and 5.
  const std::vector<float> score = {6, 5, 3, 1, 2, 4};
  HeadInput in = example.input();
  in.is_protected = {};
  std::vector<float> refined = score;
  refine_margin(in, {.k = 2, .chunk = 1, .share = 0.5}, refined);
  std::vector<float> expected = score;
  std::swap(expected[1], expected[5]);
  EXPECT_GT(loss[5], loss[1]);
  EXPECT_EQ(refined, expected);

  std::vector<float> none = score;
  refine_margin(in, {.k = 2, .chunk = 1, .share = 0}, none);
  EXPECT_EQ(none, score);
  std::vector<float> everything = score;
  refine_margin(in, {.k = 6, .chunk = 1, .share = 0.1}, everything);
  EXPECT_THAT(select(everything, {}, 6, 1), ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(Refine, WithAWideMarginTheBestByLossStay) {
  SyntheticHead head({.n_rows = 64, .n_window = 8, .gap = 0});
  HeadInput in = head.input();
  std::vector<uint8_t> is_protected(64, 0);
  is_protected[0] = is_protected[63] = 1;
  in.is_protected = is_protected;
  for (const int chunk : {1, 4}) {
    std::vector<float> score(64);
    for (size_t i = 0; i < 64; ++i)
      score[i] = static_cast<float>(i * 37 % 64);
    std::vector<int32_t> rows(64);
    std::iota(rows.begin(), rows.end(), 0);
    std::vector<float> term(64);
    exact_terms(in, rows, term);
    std::vector<float> refined = score;
    refine_margin(in, {.k = 34, .chunk = chunk, .share = 2}, refined);
    EXPECT_EQ(select(refined, is_protected, 34, chunk).size(), 34U);
    std::vector<int32_t> by_loss = select(term, is_protected, 34, chunk);
    std::vector<int32_t> kept = select(refined, is_protected, 34, chunk);
    // The last chunk is split by its rows' own scores, which a refined chunk no longer has.
    std::vector<int32_t> both;
    std::set_intersection(by_loss.begin(), by_loss.end(), kept.begin(), kept.end(), std::back_inserter(both));
    EXPECT_GE(static_cast<int>(both.size()), 34 - (chunk - 1)) << chunk;
  }
}

TEST(Refine, DecidesInAnDPro) {
  SyntheticHead head({.n_rows = 400, .n_window = 32, .gap = 0.1});
  SerialExecutor executor;
  const auto kept = [&](const std::string& policy) {
    const LayerInput in{.heads = {head.input()}, .n_sinks = 4, .n_recent = 20, .rows_total = 100};
    return decide_layer(std::move(parse_policy(policy, {})).value(), in, executor).keep[0];
  };
  const auto plain = kept("andpro");
  const auto refined = kept("andpro:refine=0.2");
  EXPECT_EQ(plain.size(), 100U);
  EXPECT_EQ(refined.size(), 100U);
  EXPECT_NE(plain, refined);
  std::vector<int32_t> both;
  std::set_intersection(plain.begin(), plain.end(), refined.begin(), refined.end(), std::back_inserter(both));
  EXPECT_GE(both.size(), 76U) << "at most the margin changes, and a chunk";
}

}  // namespace
}  // namespace kedge::eviction
