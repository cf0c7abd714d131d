// SVG figures as text: shapes, axes, legends. Colours, fonts and widths of lines are classes of page/figure.css, so
// that a figure follows the page's colour scheme; only the cells of maps carry their own colour.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "scale.h"

namespace kedge::report {

constexpr double kFigureWidth = 720;

struct Point {
  double x = 0, y = 0;
};

struct Box {
  double x = 0, y = 0, width = 0, height = 0;
};

// How a series of points is told from others: colour and marker by policy, dashes and hollow markers by run.
struct Style {
  int colour = -1;  // 0..7, -1: the full cache
  int run = 0;
};

// "M0 1L2 3"
std::string outline(const std::vector<Point>& points);

// About as wide as the text is drawn, in pixels; generous.
double text_width(std::string_view text, double size);

class Svg {
 public:
  explicit Svg(double width = kFigureWidth) : width_(width) {}

  // `attributes` as they stand in the tag: class="grid".
  void rect(const Box& box, std::string_view attributes);
  void line(Point from, Point to, std::string_view attributes);
  // Escapes the text. `attributes` may give class, text-anchor, fill.
  void text(Point at, std::string_view text, std::string_view attributes = {});
  void path(std::string_view d, std::string_view attributes);
  void open(std::string_view attributes);  // a group; with close()
  void close();
  void tooltip(std::string_view text);  // of the group that was opened last

  void polyline(const std::vector<Point>& points, const Style& style);
  void marker(Point at, const Style& style);
  // Entries in rows from the left, at y; returns the y below them.
  struct Entry {
    std::string label;
    Style style;
    bool line = true;
  };
  double legend(const std::vector<Entry>& entries, double y);

  double width() const { return width_; }
  // The whole element. `label` is what a screen reader says.
  std::string finish(double height, std::string_view label) const;

 private:
  double width_;
  std::string body_;
};

// The place of a chart with both axes.
struct Frame {
  Scale x, y;
  std::string x_title, y_title;
  std::vector<std::string> x_labels, y_labels;  // of the ticks; as many as ticks
  std::vector<double> x_ticks, y_ticks;
};

// About so many ticks, labelled with their plain numbers.
void put_ticks(Frame& frame, int n_x, int n_y);
void draw_frame(Svg& svg, const Frame& frame);

// The figure as a file of its own: with the style sheet and a white ground.
std::string standalone(const std::string& svg, std::string_view css);

}  // namespace kedge::report
