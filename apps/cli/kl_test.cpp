#include "kl.h"

#include <gtest/gtest.h>

#include <cmath>

namespace kedge::cli {
namespace {

// Logits of given probabilities, shifted: softmax must not care.
std::vector<float> logits_of(const std::vector<double>& p, float shift) {
  std::vector<float> logits;
  for (const double value : p)
    logits.push_back(static_cast<float>(std::log(value)) + shift);
  return logits;
}

TEST(Kl, KnownDistributions) {
  const auto full = logits_of({0.5, 0.25, 0.25}, 3.0F);
  const auto other = logits_of({0.25, 0.5, 0.25}, -80.0F);
  const Comparison result = compare(full, other, 0);
  EXPECT_NEAR(result.kld, 0.25 * std::log(2.0), 1e-5);
  EXPECT_NEAR(result.nll, std::log(4.0), 1e-5);
  EXPECT_NEAR(result.full_nll, std::log(2.0), 1e-6);
  EXPECT_FALSE(result.same_top);
  EXPECT_NEAR(negative_log_likelihood(other, 1), std::log(2.0), 1e-5);
}

TEST(Kl, EqualRowsAreExactlyZero) {
  std::vector<float> row;
  for (int i = 0; i < 1000; ++i)
    row.push_back(std::sin(static_cast<float>(i)) * 20.0F);
  const Comparison result = compare(row, row, 17);
  EXPECT_EQ(result.kld, 0.0);
  EXPECT_EQ(result.nll, result.full_nll);
  EXPECT_EQ(result.nll, negative_log_likelihood(row, 17));
  EXPECT_TRUE(result.same_top);
}

TEST(Kl, LargeLogitsStayFinite) {
  const std::vector<float> full = {1000.0F, -1000.0F};
  const std::vector<float> other = {-1000.0F, 1000.0F};
  EXPECT_NEAR(compare(full, other, 0).kld, 2000.0, 1e-9);
}

TEST(Kl, TheFirstOfEqualTopsCounts) {
  const std::vector<float> tied = {1.0F, 3.0F, 3.0F};
  EXPECT_TRUE(compare(tied, std::vector<float>{0.0F, 3.0F, 1.0F}, 0).same_top);
  EXPECT_FALSE(compare(tied, std::vector<float>{0.0F, 1.0F, 3.0F}, 0).same_top);
}

TEST(Statistics, MeanErrorAndQuantile) {
  const std::vector<double> values = {4, 1, 3, 2};
  EXPECT_DOUBLE_EQ(mean(values), 2.5);
  EXPECT_NEAR(*standard_error(values), std::sqrt(5.0 / 3.0 / 4.0), 1e-12);
  EXPECT_FALSE(standard_error(std::vector<double>{1.0}).has_value());
  EXPECT_DOUBLE_EQ(quantile(values, 0), 1);
  EXPECT_DOUBLE_EQ(quantile(values, 1), 4);
  EXPECT_DOUBLE_EQ(quantile(values, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(quantile({}, 0.5), 0);
}

}  // namespace
}  // namespace kedge::cli
