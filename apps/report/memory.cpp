// Bytes held while the prompt was read and the answer decoded, from the journal.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "markup.h"
#include "sections.h"

namespace kedge::report {
namespace {

constexpr double kMiB = 1024 * 1024;
constexpr Span kAcross = {.from = 64, .to = kFigureWidth - 14};
constexpr double kHeight = 250;

bool has_memory(const Trace& trace) { return trace.memory.size() > 1; }

// "25%" of the full cache, or "6MiB". Nothing for rows a head ("2048tok"): bytes of a row are not in a run folder.
Number budget_bytes(const std::string& budget, Number full_bytes) {
  double value = 0;
  const auto [stop, error] = std::from_chars(budget.data(), budget.data() + budget.size(), value);
  if (error != std::errc())
    return std::nullopt;
  const std::string unit(stop, budget.data() + budget.size());
  const struct {
    const char* name;
    double bytes;
  } units[] = {{"B", 1}, {"KiB", 1024}, {"MiB", kMiB}, {"GiB", 1024 * kMiB}};
  for (const auto& one : units) {
    if (unit == one.name)
      return value * one.bytes;
  }
  return unit == "%" && full_bytes ? Number(value / 100 * *full_bytes) : std::nullopt;
}

// At most four points a pixel column: first, least, most and last, in their order. The line looks the same.
std::vector<Point> thinned(const std::vector<Point>& points) {
  std::vector<Point> out;
  for (size_t begin = 0; begin < points.size();) {
    size_t end = begin, least = begin, most = begin;
    for (; end < points.size() && std::floor(points[end].x) == std::floor(points[begin].x); ++end) {
      least = points[end].y < points[least].y ? end : least;
      most = points[end].y > points[most].y ? end : most;
    }
    size_t last = points.size();
    for (const size_t i : {begin, std::min(least, most), std::max(least, most), end - 1}) {
      if (i != last)
        out.push_back(points[i]);
      last = i;
    }
    begin = end;
  }
  return out;
}

struct Lines {
  Number full, budget;  // bytes
  double prompt = 0;    // tokens
  double most_tokens = 1, most_bytes = 1;
};

Lines lines_of(const std::vector<TraceOf>& traces, const std::string& budget) {
  Lines out;
  for (const TraceOf& one : traces) {
    if (!out.full || (one.trace->kv_full_bytes && *one.trace->kv_full_bytes > *out.full))
      out.full = one.trace->kv_full_bytes;
    out.prompt = std::max(out.prompt, one.trace->n_context.value_or(0));
    for (const MemoryPoint& point : one.trace->memory) {
      out.most_tokens = std::max(out.most_tokens, point.tokens);
      out.most_bytes = std::max(out.most_bytes, point.live_bytes);
    }
  }
  out.most_bytes = std::max(out.most_bytes, out.full.value_or(0));
  out.budget = budget_bytes(budget, out.full);
  return out;
}

int64_t draw_trace(Svg& svg, const Frame& frame, const TraceOf& one) {
  std::vector<Point> points;
  std::vector<Point> evictions;
  double rows = 0;
  int64_t n_evictions = 0;
  for (const MemoryPoint& point : one.trace->memory) {
    points.push_back({frame.x(point.tokens), frame.y(point.live_bytes / kMiB)});
    if (point.evicted_rows > rows) {
      ++n_evictions;
      if (evictions.empty() || points.back().x - evictions.back().x >= 8)
        evictions.push_back(points.back());
    }
    rows = point.evicted_rows;
  }
  svg.polyline(thinned(points), one.series->style);
  for (const Point& at : evictions)
    svg.marker(at, one.series->style);
  if (one.series->is_full() && !points.empty())
    svg.marker(points.back(), one.series->style);
  return n_evictions;
}

void draw_limit(Svg& svg, const Frame& frame, double value, const std::string& label) {
  const double y = frame.y(value / kMiB);
  svg.line({kAcross.from, y}, {kAcross.to, y}, "class=\"limit\"");
  svg.text({kAcross.from + 8, y - 5}, label, "class=\"small halo\"");
}

Figure figure_of(const Setting& setting, const std::vector<TraceOf>& traces) {
  const Lines lines = lines_of(traces, setting.budget);
  Svg svg;
  std::vector<Svg::Entry> entries;
  for (const TraceOf& one : traces)
    entries.push_back({.label = one.series->label, .style = one.series->style});
  const double top = svg.legend(entries, 0) + 14, bottom = top + kHeight;
  Frame frame{.x = Scale({.from = 0, .to = lines.most_tokens}, kAcross, false),
              .y = Scale({.from = 0, .to = lines.most_bytes / kMiB * 1.1}, {.from = bottom, .to = top}, false),
              .x_title = "tokens read and generated",
              .y_title = "KV memory, MiB",
              .x_labels = {},
              .y_labels = {},
              .x_ticks = {},
              .y_ticks = {}};
  frame.x_ticks = frame.x.ticks(8);
  frame.y_ticks = frame.y.ticks(5);
  for (const double tick : frame.x_ticks)
    frame.x_labels.push_back(plain(tick));
  for (const double tick : frame.y_ticks)
    frame.y_labels.push_back(plain(tick));
  draw_frame(svg, frame);
  if (lines.prompt > 0 && lines.prompt < lines.most_tokens) {
    const double x = frame.x(lines.prompt);
    svg.line({x, bottom}, {x, top}, "class=\"guide\"");
    svg.text({x - 6, bottom - 8}, "prompt", "class=\"small muted halo\" text-anchor=\"end\"");
  }
  int64_t n_evictions = 0;
  for (const TraceOf& one : traces)
    n_evictions += draw_trace(svg, frame, one);
  if (lines.full)
    draw_limit(svg, frame, *lines.full, "full cache " + bytes(*lines.full));
  if (lines.budget && (!lines.full || *lines.budget < 0.93 * *lines.full))
    draw_limit(svg, frame, *lines.budget, "budget " + setting.budget + " = " + bytes(*lines.budget));
  const std::string length = length_text(traces.front().trace->length);
  return {.name = "memory-" + slug(setting.task) + "-" + slug(setting.budget),
          .choice = setting.budget,
          .svg = svg.finish(bottom + 46, "KV memory over time, " + setting.task + " at " + setting.budget),
          .caption = "First sample of " + length + " at a budget of " + setting.budget + "; markers are evictions (" +
                     std::to_string(n_evictions) + " in all, drawn where there is room)."};
}

std::string heading_of(const Setting& setting, const std::vector<TraceOf>& traces) {
  const TraceOf* highest = nullptr;
  double peak = 0, end = 0;
  for (const TraceOf& one : traces) {
    for (const MemoryPoint& point : one.trace->memory) {
      if (!one.series->is_full() && point.live_bytes > peak) {
        peak = point.live_bytes;
        highest = &one;
      }
    }
  }
  if (highest == nullptr)
    return "No policy that evicts has a trace of its memory.";
  end = highest->trace->memory.back().live_bytes;
  const Lines lines = lines_of(traces, setting.budget);
  std::string out = "At a budget of " + setting.budget + " no policy ever holds more than " + bytes(peak);
  if (lines.full)
    out += " where the full cache takes " + bytes(*lines.full);
  return out + "; " + highest->series->label + ", the highest, ends with " + bytes(end) + ".";
}

}  // namespace

Section memory_section(const Comparison& comparison) {
  Section section{.id = "memory", .kicker = "Memory over time"};
  for (const std::string& task : comparison.tasks()) {
    const Setting telling = telling_setting(comparison, task);
    FigureSet set{.title = task, .label = "Budget", .first = telling.budget};
    for (const std::string& budget : comparison.budgets()) {
      const Setting setting{.task = task, .budget = budget};
      const std::vector<TraceOf> traces = longest_traces(comparison, setting, has_memory);
      const auto evicts = [](const TraceOf& one) { return !one.series->is_full(); };
      if (std::none_of(traces.begin(), traces.end(), evicts))
        continue;
      set.figures.push_back(figure_of(setting, traces));
      if (section.heading.empty() && budget == telling.budget)
        section.heading = heading_of(setting, traces);
    }
    if (!set.figures.empty())
      section.sets.push_back(std::move(set));
  }
  if (section.sets.empty()) {
    section.heading = "How memory went over time was not recorded.";
    section.note = any_journal(comparison) ? "The journals of these runs have no memory traces."
                                           : "The figure needs journal.jsonl, which these runs do not have.";
  } else {
    if (section.heading.empty())
      section.heading = "Each line must stay below the budget once the prompt is read.";
    section.note =
        "Look for lines that cross the budget: within a prompt that is read layer by layer only one layer may "
        "hold more than its share.";
  }
  return section;
}

}  // namespace kedge::report
