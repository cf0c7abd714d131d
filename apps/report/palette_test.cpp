#include "palette.h"

#include <gtest/gtest.h>

#include <cmath>

namespace kedge::report {
namespace {

TEST(Palette, LightnessByHand) {
  EXPECT_NEAR(lightness({255, 255, 255}), 100, 1e-9);
  EXPECT_NEAR(lightness({0, 0, 0}), 0, 1e-9);
  EXPECT_NEAR(lightness({119, 119, 119}), 50.03, 0.01);  // #777777
}

TEST(Palette, GrowsEvenlyInGrey) {
  double last = lightness(ramp(0));
  EXPECT_NEAR(last, 17, 0.1);
  for (int i = 1; i <= 100; ++i) {
    const double next = lightness(ramp(i / 100.0));
    EXPECT_NEAR(next - last, 0.78, 0.05) << i;
    last = next;
  }
  EXPECT_NEAR(last, 95, 0.1);
}

// Red-green blind eyes see (about) one channel for red and green: the ramp must still change steadily in blue-yellow or
// lightness, and neighbours a fifth apart must stay far from each other.
TEST(Palette, StepsStayApartWithoutRedAndGreen) {
  for (int i = 0; i < 5; ++i) {
    const Rgb a = ramp(i / 5.0), b = ramp((i + 1) / 5.0);
    const double yellow = (b.r + b.g) / 2 - (a.r + a.g) / 2, blue = b.b - a.b;
    EXPECT_GT(std::hypot(yellow, blue), 25) << i;
  }
}

TEST(Palette, InkIsReadableEverywhere) {
  for (int i = 0; i <= 100; ++i) {
    const Rgb colour = ramp(i / 100.0);
    const double light = lightness(colour);
    EXPECT_EQ(ink_on(colour), light < 49 ? "white" : "black") << light;
  }
}

TEST(Palette, OutsideIsTheNearestEnd) {
  EXPECT_EQ(hex(ramp(-1)), hex(ramp(0)));
  EXPECT_EQ(hex(ramp(2)), hex(ramp(1)));
  EXPECT_EQ(hex(ramp(std::nan(""))), hex(ramp(0)));
  EXPECT_EQ(hex({0, 127.6, 255}), "#0080ff");
}

}  // namespace
}  // namespace kedge::report
