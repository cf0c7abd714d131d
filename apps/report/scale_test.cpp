#include "scale.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kedge::report {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;

TEST(Ticks, Linear) {
  EXPECT_THAT(linear_ticks(0, 100, 5), ElementsAre(0, 20, 40, 60, 80, 100));
  EXPECT_THAT(linear_ticks(3, 27, 5), ElementsAre(5, 10, 15, 20, 25));
  EXPECT_THAT(linear_ticks(0, 0.3, 3), ElementsAre(DoubleNear(0, 1e-12), DoubleNear(0.1, 1e-12), DoubleNear(0.2, 1e-12),
                                                   DoubleNear(0.3, 1e-12)));
  EXPECT_THAT(linear_ticks(7, 7, 5), ElementsAre(7));
  EXPECT_LE(linear_ticks(1e17, 1e17 + 32, 5).size(), 21U);  // ends
}

TEST(Ticks, Logarithmic) {
  EXPECT_THAT(log_ticks(1, 30, 5), ElementsAre(1, 2, 5, 10, 20));
  EXPECT_THAT(log_ticks(0.0009, 120, 5),
              ElementsAre(DoubleNear(0.001, 1e-12), DoubleNear(0.01, 1e-12), DoubleNear(0.1, 1e-12), 1, 10, 100));
}

TEST(Scale, Places) {
  const Scale linear({.from = 0, .to = 10}, {.from = 100, .to = 200}, false);
  EXPECT_DOUBLE_EQ(linear(5), 150);
  const Scale log({.from = 1, .to = 100}, {.from = 300, .to = 100}, true);
  EXPECT_DOUBLE_EQ(log(10), 200);
  EXPECT_DOUBLE_EQ(log(0), 300);
  EXPECT_DOUBLE_EQ(Scale({.from = 4, .to = 4}, {.from = 0, .to = 10}, false)(4), 5);
}

TEST(Scale, AnAxisWithinOneDecadeIsStillMarked) {
  const Scale narrow({.from = 2.1, .to = 4.4}, {.from = 0, .to = 100}, true);
  EXPECT_GE(narrow.ticks(5).size(), 2U);
}

TEST(Padded, Margins) {
  const Span linear = padded({2, 12, 7}, 0.1, false);
  EXPECT_DOUBLE_EQ(linear.from, 1);
  EXPECT_DOUBLE_EQ(linear.to, 13);
  const Span log = padded({1, 100}, 0.5, true);
  EXPECT_DOUBLE_EQ(log.from, 0.1);
  EXPECT_DOUBLE_EQ(log.to, 1000);
}

}  // namespace
}  // namespace kedge::report
