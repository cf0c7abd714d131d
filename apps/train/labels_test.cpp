#include "train/labels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "eviction/example.h"
#include "kernels/attention.h"

namespace kedge::train {
namespace {

// The largest weight of row i over queries at least `window` later, by the definition.
double largest(const eviction::HeadInput& in, int32_t i, int window) {
  const auto d = static_cast<size_t>(in.rows.head_dim);
  const auto n = static_cast<size_t>(in.rows.n_rows);
  std::vector<float> k(n * d);
  read_rows(in.rows, 0, in.rows.n_rows, k.data(), nullptr);
  double most = 0;
  for (int t = 0; t < in.n_window; ++t) {
    if (in.query_positions[t] < in.rows.position(i) + window)
      continue;
    for (int g = 0; g < in.group; ++g) {
      const float* q = in.q + (static_cast<size_t>(t) * in.group + g) * d;
      std::vector<double> e(n, 0.0);
      double sum = 0;
      for (size_t row = 0; row < n; ++row) {
        if (in.rows.position(static_cast<int32_t>(row)) > in.query_positions[t])
          continue;
        double dot = 0;
        for (size_t j = 0; j < d; ++j)
          dot += static_cast<double>(q[j]) * static_cast<double>(k[row * d + j]);
        e[row] = std::exp(dot * static_cast<double>(in.scale));
        sum += e[row];
      }
      most = std::max(most, e[static_cast<size_t>(i)] / sum);
    }
  }
  return most;
}

TEST(Labels, FutureAttentionIsTheLargestLaterWeight) {
  const eviction::ExampleHead example;
  const eviction::HeadInput& in = example.input();
  int n_seen = 0;
  for (const int window : {1, 2, 3, 100}) {
    const std::vector<float> got = future_attention(in, window);
    ASSERT_EQ(got.size(), static_cast<size_t>(in.rows.n_rows));
    for (int32_t i = 0; i < in.rows.n_rows; ++i) {
      EXPECT_NEAR(static_cast<double>(got[static_cast<size_t>(i)]), largest(in, i, window), 1e-4) << window << " " << i;
      n_seen += got[static_cast<size_t>(i)] > 0 ? 1 : 0;
    }
  }
  EXPECT_GT(n_seen, 4) << "some rows are looked at later";
  for (const float weight : future_attention(in, 100))
    EXPECT_EQ(weight, 0.0F) << "nothing is that much later";
}

// W_O of one head that doubles the first value and drops the others.
TEST(Labels, TheNormIsOfTheProjectedValue) {
  const eviction::ExampleHead example;
  const eviction::HeadInput& in = example.input();
  const int d = in.rows.head_dim;
  std::vector<float> w_o(static_cast<size_t>(d) * 3, 0.0F);
  w_o[1] = 2.0F;
  const std::vector<float> norm = OutputNorm(w_o, 1, d, 3).of(in.rows);
  std::vector<float> v(static_cast<size_t>(in.rows.n_rows) * static_cast<size_t>(d));
  read_rows(in.rows, 0, in.rows.n_rows, nullptr, v.data());
  for (size_t i = 0; i < norm.size(); ++i)
    EXPECT_NEAR(norm[i], std::abs(2 * v[i * static_cast<size_t>(d)]), 1e-5F);
}

// W_O of one head that changes nothing.
OutputNorm plain_norm(int d) {
  std::vector<float> w_o(static_cast<size_t>(d) * static_cast<size_t>(d), 0.0F);
  for (int i = 0; i < d; ++i)
    w_o[static_cast<size_t>(i * d + i)] = 1.0F;
  return {w_o, 1, d, d};
}

TEST(Labels, AreLogsOfWeightTimesNorm) {
  const eviction::ExampleHead example;
  const eviction::HeadInput& in = example.input();
  const int d = in.rows.head_dim;
  const OutputNorm norm = plain_norm(d);
  const std::vector<float> norms = norm.of(in.rows);
  const std::vector<float> future = future_attention(in, 1);
  const std::vector<float> both =
      row_labels(in, norm, {.label = Label::both, .norm = LabelNorm::value, .window = 1}).all;
  const std::vector<float> repeat =
      row_labels(in, norm, {.label = Label::repeat, .norm = LabelNorm::value, .window = 1}).all;
  for (size_t i = 0; i < both.size(); ++i) {
    const float weight = std::max(future[i], in.reconstruction[i]);
    EXPECT_NEAR(both[i], std::log(std::max(weight, 1e-6F)) + std::log(std::max(norms[i], 1e-6F)), 1e-4F);
    EXPECT_NEAR(repeat[i], std::log(in.reconstruction[i]) + std::log(std::max(norms[i], 1e-6F)), 1e-4F);
  }
}

// What goes leaves v - y behind: a value of nothing still counts, by what the heads give without it.
TEST(Labels, AChangeIsThatOfTheOutputToo) {
  const eviction::ExampleHead example;
  const eviction::HeadInput& in = example.input();
  const int d = in.rows.head_dim;
  const OutputNorm norm = plain_norm(d);
  double square = 0;  // of the first query's outputs: every eighth query is looked at
  for (int i = 0; i < in.group * d; ++i)
    square += static_cast<double>(in.y[i]) * static_cast<double>(in.y[i]) / in.group;
  EXPECT_NEAR(norm.mean_square_output(in), square, 1e-5 * square);
  const std::vector<float> values = norm.of(in.rows);
  const std::vector<float> value = row_labels(in, norm, {.norm = LabelNorm::value, .window = 1}).all;
  const std::vector<float> change = row_labels(in, norm, {.norm = LabelNorm::change, .window = 1}).all;
  for (size_t i = 0; i < values.size(); ++i) {
    const double both = static_cast<double>(values[i]) * static_cast<double>(values[i]) + square;
    EXPECT_NEAR(change[i] - value[i], 0.5 * std::log(both) - std::log(std::max(static_cast<double>(values[i]), 1e-6)),
                1e-3);
  }
}

// Cut at the second of the example's two queries, the first one's weights are no part of what comes late.
TEST(Labels, LateOnesAreOfTheQueriesFromTheCutOn) {
  const eviction::ExampleHead example;
  const eviction::HeadInput& in = example.input();
  const int d = in.rows.head_dim;
  const OutputNorm norm = plain_norm(d);
  const LabelOptions options{.label = Label::future, .norm = LabelNorm::value, .window = 1};
  const RowLabels whole = row_labels(in, norm, options);
  EXPECT_EQ(whole.all, whole.late);
  const RowLabels cut = row_labels(in, norm, options, in.query_positions[1]);
  EXPECT_EQ(cut.all, whole.all);
  eviction::HeadInput second = in;
  second.q += static_cast<ptrdiff_t>(in.group) * d;
  second.query_positions += 1;
  second.n_window = 1;
  EXPECT_EQ(cut.late, row_labels(second, norm, options).all);
  EXPECT_NE(cut.late, cut.all);
  EXPECT_EQ(row_labels(in, norm, {.label = Label::repeat, .window = 1}, 5).late,
            row_labels(in, norm, {.label = Label::repeat, .window = 1}).all);
}

}  // namespace
}  // namespace kedge::train
