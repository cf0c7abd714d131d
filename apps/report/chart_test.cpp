#include "chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kedge::report {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Svg, ShapesAndEscaping) {
  Svg svg(100);
  svg.rect({.x = 1, .y = 2.25, .width = 3, .height = 4}, "class=\"grid\"");
  svg.text({5, 6}, "<b>&", "class=\"small\"");
  const std::string out = svg.finish(50, "a \"label\"");
  EXPECT_THAT(out, HasSubstr("<rect x=\"1\" y=\"2.3\" width=\"3\" height=\"4\" class=\"grid\"/>"));
  EXPECT_THAT(out, HasSubstr("<text x=\"5\" y=\"6\" class=\"small\">&lt;b&gt;&amp;</text>"));
  EXPECT_THAT(out, HasSubstr("viewBox=\"0 0 100 50\""));
  EXPECT_THAT(out, HasSubstr("aria-label=\"a &quot;label&quot;\""));
}

TEST(Svg, PolylineByHand) {
  Svg svg;
  svg.polyline({{0, 1}, {2, 3.04}}, {.colour = 2, .run = 1});
  EXPECT_THAT(svg.finish(1, ""), HasSubstr("<path d=\"M0 1L2 3\" class=\"line k2 run1\"/>"));
}

TEST(Svg, LegendWraps) {
  Svg svg(200);
  const std::vector<Svg::Entry> entries(3, {.label = "a rather long name", .style = {.colour = 0}});
  EXPECT_EQ(svg.legend(entries, 10), 70);  // one a row
  EXPECT_EQ(Svg(200).legend({}, 10), 10);
}

TEST(Frame, LabelsThatWouldTouchAreLeftOut) {
  Svg svg;
  const Span domain{.from = 0, .to = 100};
  draw_frame(svg, {.x = Scale(domain, {.from = 50, .to = 150}, false),
                   .y = Scale(domain, {.from = 100, .to = 0}, false),
                   .x_title = "x",
                   .y_title = "y",
                   .x_labels = {"first one", "second", "third"},
                   .y_labels = {},
                   .x_ticks = {0, 5, 100},
                   .y_ticks = {}});
  const std::string out = svg.finish(100, "");
  EXPECT_THAT(out, HasSubstr(">first one<"));
  EXPECT_THAT(out, Not(HasSubstr(">second<")));
  EXPECT_THAT(out, HasSubstr(">third<"));
}

TEST(Svg, TheNinthPolicyLooksUnlikeTheFirst) {
  const auto drawn = [](int colour) {
    Svg svg;
    svg.marker({0, 0}, {.colour = colour});
    return svg.finish(1, "");
  };
  for (int other = 0; other < 11; ++other) {
    if (other != 8) {
      EXPECT_NE(drawn(8), drawn(other)) << other;
    }
  }
}

TEST(Standalone, CarriesItsStyleAndAMargin) {
  Svg svg(100);
  svg.line({0, 0}, {1, 1}, "class=\"grid\"");
  const std::string file = standalone(svg.finish(50, "x"), ".x{}");
  EXPECT_THAT(file, HasSubstr("viewBox=\"-14 -14 128 78\" width=\"128\" height=\"78\"><style>.x{}</style>"));
  EXPECT_THAT(file, HasSubstr("<rect x=\"-14\" y=\"-14\" width=\"128\" height=\"78\" fill=\"#ffffff\"/><line "));
}

}  // namespace
}  // namespace kedge::report
