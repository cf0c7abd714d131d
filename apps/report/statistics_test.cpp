#include "statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace kedge::report {
namespace {

using testing::ElementsAre;
using Values = std::vector<double>;

TEST(PairedDifference, ByHand) {
  // differences 1 2 3: only +++ and --- have |mean| >= 2, so p = 2 / 8; variance 1, se = sqrt(1 / 3)
  const PairedDifference d = paired_difference(Values{2, 4, 6}, Values{1, 2, 3}, 0);
  EXPECT_EQ(d.n, 3);
  EXPECT_DOUBLE_EQ(d.mean, 2);
  EXPECT_DOUBLE_EQ(d.se.value(), std::sqrt(1.0 / 3));
  EXPECT_DOUBLE_EQ(d.p, 0.25);
}

TEST(PairedDifference, FewEqualDifferencesAreNoProof) {
  const Values ones(5, 1.0), zeros(5, 0.0);
  EXPECT_DOUBLE_EQ(paired_difference(ones, zeros, 0).p, 2.0 / 32);  // a t-test would say p = 0
  const Values six_ones(6, 1.0), six_zeros(6, 0.0);
  EXPECT_DOUBLE_EQ(paired_difference(six_ones, six_zeros, 0).p, 2.0 / 64);
  EXPECT_LT(paired_difference(six_ones, six_zeros, 0).p, kSignificant);
}

TEST(PairedDifference, TiesCountForNothing) {
  EXPECT_DOUBLE_EQ(paired_difference(Values{1, 1, 1}, Values{1, 1, 1}, 0).p, 1);
  EXPECT_DOUBLE_EQ(paired_difference(Values{1, 0, 1, 1}, Values{0, 0, 1, 0}, 0).p, 0.5);  // two differences: 2 / 4
  EXPECT_DOUBLE_EQ(paired_difference(Values{}, Values{}, 0).p, 1);
  EXPECT_FALSE(paired_difference(Values{1}, Values{0}, 0).se.has_value());
}

TEST(PairedDifference, DrawnAgreesWithTheNormalLaw) {
  // 100 pairs, 60 for a and 40 for b: sum 20 of 100 signs, z = 2; exactly P(|S| >= 20) = 0.0569
  Values a(100, 0.0), b(100, 0.0);
  for (size_t i = 0; i < 100; ++i)
    (i < 60 ? a : b)[i] = 1;
  const PairedDifference d = paired_difference(a, b, 7);
  EXPECT_NEAR(d.p, 0.0569, 0.006);
  EXPECT_EQ(paired_difference(a, b, 7).p, d.p);
  EXPECT_NEAR(d.mean, 0.2, 1e-12);
}

TEST(ParetoFront, ByHand) {
  const std::vector<CostValue> points = {{4, 0.9}, {1, 0.2}, {2, 0.1}, {2, 0.6}, {8, 0.9}, {3, 0.6}, {1, 0.2}};
  EXPECT_THAT(pareto_front(points), ElementsAre(1, 3, 0));
  EXPECT_TRUE(pareto_front({}).empty());
}

}  // namespace
}  // namespace kedge::report
