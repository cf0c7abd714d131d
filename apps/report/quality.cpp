// Quality against the bytes that were really held: one line a policy, error bars, and the points that no other beats.
#include <algorithm>
#include <cmath>

#include "markup.h"
#include "sections.h"

namespace kedge::report {
namespace {

constexpr double kMiB = 1024 * 1024;
constexpr Span kAcross = {.from = 70, .to = kFigureWidth - 14};
constexpr double kHeight = 260;

struct Dot {
  const Series* series = nullptr;
  const Group* group = nullptr;
  double mib = 0;
  double aside = 0;  // pixels: bars of one budget stand side by side
  double value = 0, low = 0, high = 0;
};

struct Plot {
  std::string task;
  Number length;
  Measure measure = Measure::score;  // score or kld
  std::vector<Dot> dots;
  std::vector<size_t> front;
  Number floor;  // of the divergence
};

// 95 %: the bootstrap's interval where there is one, else 1.96 standard errors.
void set_interval(Dot& dot, Measure measure) {
  const Group& g = *dot.group;
  const double se = (measure == Measure::score ? g.score_se : g.kld_se).value_or(0);
  dot.low = dot.value - 1.96 * se;
  dot.high = dot.value + 1.96 * se;
  if (measure == Measure::score && g.score_lo && g.score_hi) {
    dot.low = *g.score_lo;
    dot.high = *g.score_hi;
  }
  if (measure == Measure::kld)
    dot.low = std::max(dot.low, dot.value / 10);  // a log axis has no room for 0
}

Plot plot_of(const Comparison& comparison, const std::string& task, Number length, Measure measure) {
  Plot plot{.task = task, .length = length, .measure = measure};
  for (const Series& series : comparison.series()) {
    const std::vector<std::string> once = {"100%"};
    for (const std::string& budget : series.is_full() ? once : comparison.budgets()) {
      const Group* group = comparison.find(series, {.task = task, .budget = budget, .length = length});
      if (group == nullptr || !group->kv_live_bytes || *group->kv_live_bytes <= 0)
        continue;
      const Number value = measure == Measure::score ? group->score : group->kld_mean;
      if (!value || (measure == Measure::kld && *value <= 0))
        continue;
      Dot dot{.series = &series, .group = group, .mib = *group->kv_live_bytes / kMiB, .value = *value};
      set_interval(dot, measure);
      plot.dots.push_back(dot);
    }
  }
  const auto first = std::min_element(plot.dots.begin(), plot.dots.end(),
                                      [](const Dot& a, const Dot& b) { return a.series < b.series; });
  const auto last = std::max_element(plot.dots.begin(), plot.dots.end(),
                                     [](const Dot& a, const Dot& b) { return a.series < b.series; });
  for (Dot& dot : plot.dots) {
    const auto place = static_cast<double>(dot.series - first->series);
    const auto width = static_cast<double>(last->series - first->series);
    dot.aside = dot.series->is_full() ? 0 : (place - width / 2) * std::min(5.0, 30 / std::max(width, 1.0));
  }
  std::vector<CostValue> points;
  for (const Dot& dot : plot.dots)
    points.push_back({.cost = dot.mib, .value = measure == Measure::score ? dot.value : -dot.value});
  plot.front = pareto_front(points);
  for (const Run& run : comparison.runs()) {
    if (measure == Measure::kld && run.noise_floor && run.noise_floor->kld_mean > 0 && !plot.floor)
      plot.floor = run.noise_floor->kld_mean;
  }
  return plot;
}

Scale y_scale(const Plot& plot, Span range) {
  std::vector<double> values;
  for (const Dot& dot : plot.dots) {
    values.push_back(dot.low);
    values.push_back(dot.high);
  }
  if (plot.measure == Measure::score) {
    const double low = *std::min_element(values.begin(), values.end());
    const double from = low > 0.6 ? std::floor(low * 10 - 0.5) / 10 : 0;
    return {{.from = from, .to = 1.02}, range, false};
  }
  if (plot.floor)
    values.push_back(*plot.floor);
  return {padded(values, 0.08, true), range, true};
}

// Where the dots of a budget lie, marked above the plot: points of different policies stand one above the other.
void draw_budgets(Svg& svg, const Plot& plot, const Comparison& comparison, const Frame& frame) {
  double free_to = 1e9;
  for (const std::string& budget : comparison.budgets()) {
    double sum = 0, n = 0;
    for (const Dot& dot : plot.dots) {
      if (!dot.series->is_full() && dot.group->budget == budget) {
        sum += std::log(dot.mib);
        n += 1;
      }
    }
    const double x = n > 0 ? frame.x(std::exp(sum / n)) : 0;
    const double half = text_width(budget, 12) / 2;
    if (n == 0 || x + half > free_to)
      continue;
    svg.text({x, frame.y.range().to - 8}, budget, "class=\"small muted\" text-anchor=\"middle\"");
    svg.line({x, frame.y.range().to}, {x, frame.y.range().from}, "class=\"guide\"");
    free_to = x - half - 4;
  }
}

void draw_dots(Svg& svg, const Plot& plot, const Comparison& comparison, const Frame& frame) {
  std::vector<Point> front;
  for (const size_t i : plot.front)
    front.push_back({frame.x(plot.dots[i].mib) + plot.dots[i].aside, frame.y(plot.dots[i].value)});
  svg.path(outline(front), "class=\"front\"");
  for (const Series& series : comparison.series()) {
    std::vector<Dot> dots;
    for (const Dot& dot : plot.dots) {
      if (dot.series == &series)
        dots.push_back(dot);
    }
    std::sort(dots.begin(), dots.end(), [](const Dot& a, const Dot& b) { return a.mib < b.mib; });
    std::vector<Point> line;
    for (const Dot& dot : dots)
      line.push_back({frame.x(dot.mib) + dot.aside, frame.y(dot.value)});
    if (line.size() > 1)
      svg.polyline(line, series.style);
    for (size_t i = 0; i < dots.size(); ++i) {
      const Dot& dot = dots[i];
      const bool score = plot.measure == Measure::score;
      svg.open("class=\"dot\"");
      svg.tooltip(series.label + " at " + dot.group->budget + ": " +
                  (score ? percent(dot.value, 1) : "KLD " + significant(dot.value)) + " with " +
                  bytes(*dot.group->kv_live_bytes));
      svg.polyline({{line[i].x, frame.y(dot.low)}, {line[i].x, frame.y(dot.high)}},
                   {.colour = series.style.colour, .run = 0});
      svg.marker(line[i], series.style);
      svg.close();
    }
  }
}

std::string front_text(const Plot& plot) {
  std::vector<std::string> names;
  for (const size_t i : plot.front) {
    const Dot& dot = plot.dots[i];
    names.push_back(dot.series->is_full() ? "the full cache" : dot.series->label + " " + dot.group->budget);
  }
  return listed(names, 8);
}

Figure figure_of(const Comparison& comparison, const Plot& plot) {
  const bool score = plot.measure == Measure::score;
  Svg svg;
  std::vector<Svg::Entry> entries;
  for (const Series& series : comparison.series()) {
    const auto mine = [&](const Dot& dot) { return dot.series == &series; };
    if (std::any_of(plot.dots.begin(), plot.dots.end(), mine))
      entries.push_back({.label = series.label, .style = series.style, .line = !series.is_full()});
  }
  const double top = svg.legend(entries, 0) + 26, bottom = top + kHeight;
  std::vector<double> mib;
  for (const Dot& dot : plot.dots)
    mib.push_back(dot.mib);
  Frame frame{.x = Scale(padded(mib, 0.06, true), kAcross, true),
              .y = y_scale(plot, {.from = bottom, .to = top}),
              .x_title = "KV memory held, MiB (log scale)",
              .y_title = score ? "score, %" : "KLD to the full cache, nats (log scale)",
              .x_labels = {},
              .y_labels = {},
              .x_ticks = {},
              .y_ticks = {}};
  put_ticks(frame, 8, 5);
  for (size_t i = 0; score && i < frame.y_ticks.size(); ++i)
    frame.y_labels[i] = real(100 * frame.y_ticks[i], 0);
  draw_frame(svg, frame);
  draw_budgets(svg, plot, comparison, frame);
  if (plot.floor) {
    const double y = frame.y(*plot.floor);
    svg.line({kAcross.from, y}, {kAcross.to, y}, "class=\"limit\"");
    svg.text({kAcross.to, y - 5}, "noise floor " + significant(*plot.floor), "class=\"small\" text-anchor=\"end\"");
  }
  draw_dots(svg, plot, comparison, frame);
  const std::string length = length_text(plot.length);
  const std::string kind = score ? "quality" : "kld";
  std::string caption =
      "Bars are 95 % intervals, drawn side by side; the wide pale line joins what no other point beats: " +
      front_text(plot) + ".";
  if (!score)
    caption += " Lower is nearer to the full cache, whose own divergence of 0 has no place on a log axis.";
  return {.name = kind + "-" + slug(plot.task) + "-" + slug(plot.length ? plain(*plot.length) : "all"),
          .choice = length,
          .svg = svg.finish(bottom + 46, (score ? "Score" : "KLD") + std::string(" of ") + plot.task +
                                             " against KV memory, " + length),
          .caption = caption};
}

}  // namespace

Section quality_section(const Comparison& comparison) {
  Section section{.id = "quality", .kicker = "Quality against memory"};
  for (const Measure measure : {Measure::score, Measure::kld}) {
    for (const std::string& task : comparison.tasks()) {
      FigureSet set{.title = task + (measure == Measure::score ? ": score" : ": KLD"), .label = "Length"};
      for (const Number length : comparison.length_choices(task)) {
        const Plot plot = plot_of(comparison, task, length, measure);
        if (plot.dots.size() < 2)
          continue;
        set.figures.push_back(figure_of(comparison, plot));
        if (section.heading.empty())
          section.heading = "Nothing gives more for the same bytes than " + front_text(plot) + ".";
      }
      if (!set.figures.empty())
        section.sets.push_back(std::move(set));
    }
  }
  if (section.sets.empty()) {
    section.heading = "There are not two points to compare.";
    section.note = "The chart needs groups with kv_live_bytes and a score or a KLD in metrics.json.";
  } else {
    section.note =
        "Further left is less memory, further up is better (for KLD: further down). A policy is worth its cost "
        "where it reaches the pale line.";
  }
  return section;
}

}  // namespace kedge::report
