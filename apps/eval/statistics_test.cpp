#include "eval/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "cli/kl.h"

namespace kedge::eval {
namespace {

TEST(Bootstrap, AgreesWithTheFormulaForTheMean) {
  std::vector<double> values;
  for (int i = 0; i < 50; ++i)
    values.push_back(i % 5 == 0 ? 0.0 : 1.0);
  const Estimate e = bootstrap_mean(values, 3);
  EXPECT_DOUBLE_EQ(e.mean, 0.8);
  EXPECT_EQ(e.n, 50);
  EXPECT_NEAR(e.se, std::sqrt(0.8 * 0.2 / 50), 0.004);
  EXPECT_NEAR(e.lo, 0.8 - 1.96 * e.se, 0.03);
  EXPECT_NEAR(e.hi, 0.8 + 1.96 * e.se, 0.03);
  const Estimate again = bootstrap_mean(values, 3);
  EXPECT_EQ(e.se, again.se);
  EXPECT_EQ(e.lo, again.lo);
}

TEST(Bootstrap, FewOrEqualValuesHaveNoSpread) {
  EXPECT_EQ(bootstrap_mean({}, 0).n, 0);
  const std::vector<double> one = {0.5};
  EXPECT_EQ(bootstrap_mean(one, 0).mean, 0.5);
  EXPECT_EQ(bootstrap_mean(one, 0).se, 0.0);
  const std::vector<double> equal(9, 0.25);
  const Estimate e = bootstrap_mean(equal, 0);
  EXPECT_EQ(e.se, 0.0);
  EXPECT_EQ(e.lo, 0.25);
  EXPECT_EQ(e.hi, 0.25);
}

TEST(Quantile, InterpolatesBetweenSortedValues) {
  EXPECT_DOUBLE_EQ(cli::quantile({3, 1, 2}, 0.5), 2);
  EXPECT_DOUBLE_EQ(cli::quantile({0, 10}, 0.25), 2.5);
  EXPECT_DOUBLE_EQ(cli::quantile({4}, 0.99), 4);
  EXPECT_DOUBLE_EQ(cli::quantile({}, 0.5), 0);
}

}  // namespace
}  // namespace kedge::eval
