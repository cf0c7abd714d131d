#include "chart.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "markup.h"

namespace kedge::report {
namespace {

constexpr double kLegendRow = 20;
constexpr double kLegendSample = 26;
constexpr double kLegendText = 12;
constexpr double kTitleSpace = 56;  // from the y axis to its title
constexpr int kShapes = 8;

std::string attribute(const char* name, double value) {
  return std::string(" ") + name + "=\"" + coordinate(value) + "\"";
}

std::string style_class(const Style& style) {
  const std::string colour = style.colour < 0 ? "full" : std::string("k") + std::to_string(style.colour % kShapes);
  return colour + (style.run > 0 ? " run" + std::to_string((style.run - 1) % 3 + 1) : "");
}

// One closed outline a policy, about 9 px high, around 0,0. The ninth policy has the first one's colour with another
// outline.
const char* shape(const Style& style) {
  static const char* shapes[kShapes] = {
      "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0Z",
      "M-4 -4H4V4H-4Z",
      "M0 -5L5 4H-5Z",
      "M0 -5.5L5.5 0L0 5.5L-5.5 0Z",
      "M0 5L5 -4H-5Z",
      "M-5 -1.6H-1.6V-5H1.6V-1.6H5V1.6H1.6V5H-1.6V1.6H-5Z",
      "M-5.5 -2.5H5.5V2.5H-5.5Z",
      "M0 -5L4.8 -1.5L3 4H-3L-4.8 -1.5Z",
  };
  return style.colour < 0 ? "M0 -7L1.6 -2.3H6.6L2.6 0.8L4.1 5.6L0 2.7L-4.1 5.6L-2.6 0.8L-6.6 -2.3H-1.6Z"
                          : shapes[(style.colour + 3 * (style.colour / kShapes)) % kShapes];
}

}  // namespace

double text_width(std::string_view text, double size) {
  double units = 0;
  for (const char c : text) {
    if ((static_cast<unsigned char>(c) & 0xC0) == 0x80)
      continue;
    units += std::string_view("ilj.,:;|!' ").find(c) != std::string_view::npos ? 0.34 : 0.6;
  }
  return units * size;
}

void Svg::rect(const Box& box, std::string_view attributes) {
  body_ += "<rect" + attribute("x", box.x) + attribute("y", box.y) + attribute("width", box.width) +
           attribute("height", box.height) + " " + std::string(attributes) + "/>";
}

void Svg::line(Point from, Point to, std::string_view attributes) {
  body_ += "<line" + attribute("x1", from.x) + attribute("y1", from.y) + attribute("x2", to.x) + attribute("y2", to.y) +
           " " + std::string(attributes) + "/>";
}

void Svg::text(Point at, std::string_view text, std::string_view attributes) {
  body_ += "<text" + attribute("x", at.x) + attribute("y", at.y) + " " + std::string(attributes) + ">" + escape(text) +
           "</text>";
}

void Svg::path(std::string_view d, std::string_view attributes) {
  body_ += "<path d=\"" + std::string(d) + "\" " + std::string(attributes) + "/>";
}

void Svg::open(std::string_view attributes) { body_ += "<g " + std::string(attributes) + ">"; }

void Svg::close() { body_ += "</g>\n"; }

void Svg::tooltip(std::string_view text) { body_ += "<title>" + escape(text) + "</title>"; }

std::string outline(const std::vector<Point>& points) {
  std::string d;
  for (const Point& point : points)
    d.append(d.empty() ? "M" : "L").append(coordinate(point.x)).append(" ").append(coordinate(point.y));
  return d;
}

void Svg::polyline(const std::vector<Point>& points, const Style& style) {
  path(outline(points), "class=\"line " + style_class(style) + "\"");
}

void Svg::marker(Point at, const Style& style) {
  path(shape(style), "class=\"" + std::string(style.run > 0 ? "hollow " : "mark ") + style_class(style) +
                         "\" transform=\"translate(" + coordinate(at.x) + " " + coordinate(at.y) + ")\"");
}

double Svg::legend(const std::vector<Entry>& entries, double y) {
  double x = 0;
  for (const Entry& entry : entries) {
    const double needed = kLegendSample + 8 + text_width(entry.label, kLegendText) + 14;
    if (x > 0 && x + needed > width_) {
      x = 0;
      y += kLegendRow;
    }
    const double middle = y + kLegendRow / 2;
    if (entry.line)
      polyline({{x, middle}, {x + kLegendSample, middle}}, entry.style);
    marker({x + kLegendSample / 2, middle}, entry.style);
    text({x + kLegendSample + 6, middle + 4}, entry.label, "class=\"small\"");
    x += needed;
  }
  return entries.empty() ? y : y + kLegendRow;
}

std::string Svg::finish(double height, std::string_view label) const {
  const std::string w = coordinate(width_), h = coordinate(height);
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"fig\" role=\"img\" aria-label=\"" + escape(label) +
         "\" viewBox=\"0 0 " + w + " " + h + "\" width=\"" + w + "\" height=\"" + h + "\">" + body_ + "</svg>";
}

void put_ticks(Frame& frame, int n_x, int n_y) {
  frame.x_ticks = frame.x.ticks(n_x);
  frame.y_ticks = frame.y.ticks(n_y);
  for (const double tick : frame.x_ticks)
    frame.x_labels.push_back(plain(tick));
  for (const double tick : frame.y_ticks)
    frame.y_labels.push_back(plain(tick));
}

void draw_frame(Svg& svg, const Frame& frame) {
  const Span &x = frame.x.range(), &y = frame.y.range();
  for (size_t i = 0; i < frame.y_ticks.size(); ++i) {
    const double at = frame.y(frame.y_ticks[i]);
    svg.line({x.from, at}, {x.to, at}, "class=\"grid\"");
    svg.text({x.from - 8, at + 4}, frame.y_labels[i], "class=\"small\" text-anchor=\"end\"");
  }
  double free_from = -1e9;
  for (size_t i = 0; i < frame.x_ticks.size(); ++i) {
    const double at = frame.x(frame.x_ticks[i]);
    svg.line({at, y.from}, {at, y.from + 5}, "class=\"axis\"");
    const double half = text_width(frame.x_labels[i], kLegendText) / 2;
    if (at - half < free_from)
      continue;  // its label would touch the one before
    svg.text({at, y.from + 19}, frame.x_labels[i], "class=\"small\" text-anchor=\"middle\"");
    free_from = at + half + 6;
  }
  svg.line({x.from, y.from}, {x.to, y.from}, "class=\"axis\"");
  svg.line({x.from, y.from}, {x.from, y.to}, "class=\"axis\"");
  svg.text({(x.from + x.to) / 2, y.from + 38}, frame.x_title, "class=\"small\" text-anchor=\"middle\"");
  if (frame.y_title.empty())
    return;
  const std::string title_x = coordinate(x.from - kTitleSpace);
  const std::string turned = "class=\"small\" text-anchor=\"middle\" transform=\"rotate(-90 " + title_x + " " +
                             coordinate((y.from + y.to) / 2) + ")\"";
  svg.text({x.from - kTitleSpace, (y.from + y.to) / 2}, frame.y_title, turned);
}

std::string standalone(const std::string& svg, std::string_view css) {
  constexpr double kMargin = 14;
  const size_t box = svg.find("viewBox=\""), head = svg.find('>') + 1;
  double width = 0, height = 0;
  std::sscanf(svg.c_str() + box, "viewBox=\"0 0 %lf %lf", &width, &height);
  const std::string w = coordinate(width + 2 * kMargin), h = coordinate(height + 2 * kMargin);
  const std::string size = "width=\"" + w + "\" height=\"" + h + "\"";
  return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n" + svg.substr(0, box) + "viewBox=\"-14 -14 " + w + " " + h +
         "\" " + size + "><style>" + std::string(css) + "</style><rect x=\"-14\" y=\"-14\" " + size +
         " fill=\"#ffffff\"/>" + svg.substr(head) + "\n";
}

}  // namespace kedge::report
