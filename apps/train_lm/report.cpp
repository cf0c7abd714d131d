#include "train_lm/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <vector>

#include "report/chart.h"
#include "report/markup.h"
#include "report/page.h"
#include "report/palette.h"
#include "train_lm/step_columns.h"

namespace kedge::lm {
namespace {

using report::Box;
using report::Frame;
using report::Point;
using report::Scale;
using report::Svg;

constexpr double kLeft = 68, kRight = 18, kTop = 14, kHeight = 190, kBelow = 58;
constexpr size_t kMostPoints = 500;  // of a line

struct Line {
  std::string name;
  int colour = 0;
  std::vector<Point> points;
  bool dots = false;  // few points, each of which counts
};

double value(const TrainState& state, size_t row, size_t column) {
  return state.steps[row * state.n_step_values + column];
}
size_t n_rows(const TrainState& state) {
  return state.n_step_values == 0 ? 0 : state.steps.size() / state.n_step_values;
}

// A column over the steps; where these are many, means of neighbours.
std::vector<Point> points_of(const TrainState& state, size_t column) {
  std::vector<Point> out;
  const size_t n = n_rows(state);
  const size_t each = n / kMostPoints + 1;
  for (size_t begin = 0; begin < n; begin += each) {
    const size_t end = std::min(begin + each, n);
    Point mean;
    for (size_t row = begin; row < end; ++row) {
      mean.x += value(state, row, kColumnStep) / static_cast<double>(end - begin);
      mean.y += value(state, row, column) / static_cast<double>(end - begin);
    }
    out.push_back(mean);
  }
  return out;
}

std::vector<Point> judgements_of(const TrainState& state, size_t which) {
  std::vector<Point> out;
  for (size_t i = 0; i + 2 < state.judgements.size(); i += 3)
    out.push_back({state.judgements[i], state.judgements[i + which]});
  return out;
}

std::string chart(const std::vector<Line>& lines, const std::string& y_title, bool log) {
  std::vector<double> x, y;
  for (const Line& line : lines) {
    for (const Point& point : line.points) {
      x.push_back(point.x);
      if (std::isfinite(point.y) && (!log || point.y > 0))
        y.push_back(point.y);
    }
  }
  if (y.empty())
    return {};
  Svg svg;
  std::vector<Svg::Entry> legend;
  for (const Line& line : lines)
    legend.push_back({.label = line.name, .style = {.colour = line.colour}});
  const double top = svg.legend(legend, kTop) + 8;
  Frame frame{.x = Scale(report::padded(x, 0.01, false), {kLeft, report::kFigureWidth - kRight}, false),
              .y = Scale(report::padded(y, 0.06, log), {top + kHeight, top}, log),
              .x_title = "step",
              .y_title = y_title,
              .x_labels = {},
              .y_labels = {},
              .x_ticks = {},
              .y_ticks = {}};
  put_ticks(frame, 8, 5);
  draw_frame(svg, frame);
  for (const Line& line : lines) {
    std::vector<Point> drawn;
    for (const Point& point : line.points) {
      if (std::isfinite(point.y) && (!log || point.y > 0))
        drawn.push_back({frame.x(point.x), frame.y(point.y)});
    }
    svg.polyline(drawn, {.colour = line.colour});
    for (size_t i = 0; line.dots && i < drawn.size(); ++i)
      svg.marker(drawn[i], {.colour = line.colour});
  }
  return svg.finish(top + kHeight + kBelow, y_title + " by step");
}

// A map: steps from left to right, layers from top to bottom, light where more is kept.
std::string layer_map(const TrainState& state, int n_layers) {
  constexpr size_t kMostColumns = 120;
  const size_t n = n_rows(state);
  const size_t each = n / kMostColumns + 1;
  const size_t n_columns = (n + each - 1) / each;
  const double width = (report::kFigureWidth - kLeft - kRight) / static_cast<double>(std::max<size_t>(n_columns, 1));
  const double height = std::max(4.0, 300.0 / n_layers);
  Svg svg;
  for (size_t column = 0; column < n_columns; ++column) {
    for (int layer = 0; layer < n_layers; ++layer) {
      double sum = 0;
      const size_t end = std::min((column + 1) * each, n);
      for (size_t row = column * each; row < end; ++row)
        sum += value(state, row, kStepColumns + static_cast<size_t>(layer));
      const double keep = sum / static_cast<double>(end - column * each);
      svg.rect({.x = kLeft + static_cast<double>(column) * width,
                .y = kTop + layer * height,
                .width = width + 0.2,
                .height = height + 0.2},
               "fill=\"" + report::hex(report::ramp(keep)) + "\"");
    }
  }
  for (int layer = 0; layer < n_layers; layer += std::max(1, n_layers / 10))
    svg.text({kLeft - 8, kTop + (layer + 0.5) * height + 4}, std::to_string(layer),
             "class=\"small\" text-anchor=\"end\"");
  const double below = kTop + n_layers * height + 18;
  svg.text({kLeft, below}, "step 1", "class=\"small\"");
  svg.text({report::kFigureWidth - kRight, below}, "step " + std::to_string(n), "class=\"small\" text-anchor=\"end\"");
  return svg.finish(below + 8, "Keep rate of each layer by step");
}

std::string figure(const std::string& heading, const std::string& svg, const std::string& caption) {
  if (svg.empty())
    return {};
  return "<section><h2>" + report::escape(heading) + "</h2>\n<figure>" + svg + "<figcaption>" +
         report::escape(caption) + "</figcaption></figure></section>\n";
}

std::string heading_of(const TrainState& state) {
  char text[200];
  if (state.judgements.empty())
    return "No gate was judged yet";
  std::snprintf(text, sizeof text, "Best by the engine: step %lld, KL divergence %.4f; it began at %.4f",
                static_cast<long long>(state.best_step), state.best_kld, state.start_kld);
  return text;
}

}  // namespace

std::string lm_report_csv(const TrainState& state, int n_layers) {
  std::string csv;
  for (const std::string& name : step_columns(n_layers))
    csv += name + ",";
  csv += "kld_in_training,kld_by_engine\n";
  std::map<int64_t, size_t> judged;
  for (size_t i = 0; i + 2 < state.judgements.size(); i += 3)
    judged[static_cast<int64_t>(state.judgements[i])] = i;
  char number[40];
  for (size_t row = 0; row < n_rows(state); ++row) {
    for (size_t column = 0; column < state.n_step_values; ++column) {
      std::snprintf(number, sizeof number, "%.6g,", value(state, row, column));
      csv += number;
    }
    const auto found = judged.find(static_cast<int64_t>(value(state, row, kColumnStep)));
    if (found != judged.end()) {
      std::snprintf(number, sizeof number, "%.6g,%.6g", state.judgements[found->second + 1],
                    state.judgements[found->second + 2]);
      csv += number;
    } else {
      csv += ",";
    }
    csv += "\n";
  }
  return csv;
}

std::string lm_report_html(const TrainState& state, const ReportFacts& facts) {
  std::vector<Point> hours = points_of(state, kColumnSeconds);
  double passed = 0;
  const double each = static_cast<double>(n_rows(state) / kMostPoints + 1);
  for (Point& point : hours)
    point.y = (passed += point.y * each) / 60;
  std::string page =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>" +
      report::escape(facts.title) + "</title>\n<style>" + report::asset::page_css + report::asset::figure_css +
      "</style></head>\n<body><header><h1>" + report::escape(facts.title) + "</h1></header>\n<main>\n<section><h2>" +
      report::escape(heading_of(state)) + "</h2>\n<p>" + report::escape(facts.course) + "</p>\n<p>" +
      report::escape(facts.data) + "</p>\n<p>" + report::escape(facts.effort) + "</p></section>\n";
  page += figure("Loss",
                 chart({{"loss of the step", 7, points_of(state, kColumnLmLoss)},
                        {"held out, in training", 1, judgements_of(state, 1), true},
                        {"held out, by the engine", 0, judgements_of(state, 2), true}},
                       "loss (nats a token)", true),
                 "Steps differ in their keep rates and texts; the two held-out lines do not.");
  page +=
      figure("Keep rate",
             chart({{"level", 7, points_of(state, kColumnLevel)}, {"of the step", 0, points_of(state, kColumnKeep)}},
                   "mean keep rate", false),
             "The level falls linearly in 1 / keep; every other step is easier.");
  if (n_rows(state) > 0)
    page += figure("Keep rate of each layer", layer_map(state, facts.n_layers), "Light: much is kept. Dark: little.");
  page += figure("Time", chart({{"steps", 0, hours}}, "minutes", false), "Without judgements and states.");
  return page + "</main>\n<footer>One file, nothing is loaded.</footer></body></html>\n";
}

}  // namespace kedge::lm
