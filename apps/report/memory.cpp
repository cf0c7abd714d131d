// Bytes held while the prompt was read and the answer decoded, from the journal.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "markup.h"
#include "sections.h"

namespace kedge::report {
namespace {

constexpr double kMiB = 1024 * 1024;
constexpr double kLeft = 68, kPanel = 346, kRight = 18, kTitle = 44, kHeight = 150, kBelow = 58;

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
  double most_tokens = 1;
  double top = 1;  // bytes at the upper end of the axis
};

Lines lines_of(const std::vector<TraceOf>& traces, const std::string& budget) {
  Lines out;
  double peak = 0;
  for (const TraceOf& one : traces) {
    if (!out.full || (one.trace->kv_full_bytes && *one.trace->kv_full_bytes > *out.full))
      out.full = one.trace->kv_full_bytes;
    out.prompt = std::max(out.prompt, one.trace->n_context.value_or(0));
    for (const MemoryPoint& point : one.trace->memory) {
      out.most_tokens = std::max(out.most_tokens, point.tokens);
      if (!one.series->is_full())
        peak = std::max(peak, point.live_bytes);
    }
  }
  out.budget = budget_bytes(budget, out.full);
  peak = std::max(peak, out.budget.value_or(0));
  // A small budget is not squashed under a full cache many times as large: that one leaves through the top.
  out.top = 1.15 * std::clamp(out.full.value_or(0), peak, std::max(2.5 * peak, 1.0));
  return out;
}

// The part of a line below the value `top`; its last piece ends there.
std::vector<Point> clipped(const Frame& frame, const Trace& trace) {
  const double top = frame.y.domain().to;
  std::vector<Point> out;
  for (size_t i = 0; i < trace.memory.size(); ++i) {
    const double tokens = trace.memory[i].tokens, mib = trace.memory[i].live_bytes / kMiB;
    if (mib <= top) {
      out.push_back({frame.x(tokens), frame.y(mib)});
      continue;
    }
    if (i > 0) {
      const MemoryPoint& before = trace.memory[i - 1];
      const double share = (top - before.live_bytes / kMiB) / (mib - before.live_bytes / kMiB);
      out.push_back({frame.x(before.tokens + share * (tokens - before.tokens)), frame.y(top)});
    }
    break;
  }
  return out;
}

struct Counts {
  double peak = 0;
  int64_t n_evictions = 0;
};

Counts draw_trace(Svg& svg, const Frame& frame, const TraceOf& one) {
  Counts counts;
  std::vector<Point> evictions;
  double rows = 0;
  for (const MemoryPoint& point : one.trace->memory) {
    const Point at = {frame.x(point.tokens), frame.y(point.live_bytes / kMiB)};
    counts.peak = std::max(counts.peak, point.live_bytes);
    if (point.evicted_rows > rows) {
      ++counts.n_evictions;
      if (evictions.empty() || at.x - evictions.back().x >= 9)
        evictions.push_back(at);
    }
    rows = point.evicted_rows;
  }
  svg.polyline(thinned(clipped(frame, *one.trace)), one.series->style);
  for (const Point& at : evictions)
    svg.marker(at, one.series->style);
  return counts;
}

void draw_limits(Svg& svg, const Frame& frame, const Lines& lines) {
  const Span &across = frame.x.range(), &up = frame.y.range();
  if (lines.prompt > 0 && lines.prompt < lines.most_tokens) {
    const double x = frame.x(lines.prompt);
    svg.line({x, up.from}, {x, up.to}, "class=\"guide\"");
  }
  if (lines.full) {
    const bool leaves = *lines.full > lines.top;
    const double y = leaves ? up.to : frame.y(*lines.full / kMiB);
    if (!leaves)
      svg.line({across.from, y}, {across.to, y}, "class=\"limit\"");
    svg.text({across.to - 4, leaves ? y + 10 : y - 5}, "full cache " + bytes(*lines.full) + (leaves ? " \u2191" : ""),
             "class=\"small halo\" text-anchor=\"end\"");
  }
  if (lines.budget) {
    const double y = frame.y(*lines.budget / kMiB);
    svg.line({across.from, y}, {across.to, y}, "class=\"limit\"");
  }
}

Frame frame_of(const Lines& lines, Point at) {
  Frame frame{
      .x = Scale({.from = 0, .to = lines.most_tokens}, {.from = at.x + kLeft, .to = at.x + kPanel - kRight}, false),
      .y = Scale({.from = 0, .to = lines.top / kMiB}, {.from = at.y + kTitle + kHeight, .to = at.y + kTitle}, false),
      .x_title = "tokens read and generated",
      .y_title = at.x == 0 ? "KV memory, MiB" : "",
      .x_labels = {},
      .y_labels = {},
      .x_ticks = {},
      .y_ticks = {}};
  put_ticks(frame, 5, 4);
  return frame;
}

// A panel a policy: at one budget their lines would lie on each other. The full cache is in each.
Figure figure_of(const Setting& setting, const std::vector<TraceOf>& traces) {
  const Lines lines = lines_of(traces, setting.budget);
  Svg svg;
  double y = 0;
  int64_t n_panels = 0;
  for (const TraceOf& one : traces) {
    if (one.series->is_full())
      continue;
    const double x = n_panels % 2 == 0 ? 0 : kFigureWidth - kPanel;
    y = static_cast<double>(n_panels / 2) * (kTitle + kHeight + kBelow);
    ++n_panels;
    const Frame frame = frame_of(lines, {x, y});
    draw_frame(svg, frame);
    for (const TraceOf& other : traces) {
      if (other.series->is_full() && other.series->run == one.series->run)
        svg.path(outline(thinned(clipped(frame, *other.trace))), "class=\"line full thin\"");
    }
    const Counts counts = draw_trace(svg, frame, one);
    draw_limits(svg, frame, lines);
    svg.text({x + kLeft, y + 14}, shortened(one.series->label, 30), "class=\"strong\"");
    svg.text({x + kLeft, y + 32},
             "peak " + bytes(counts.peak) + ", " + std::to_string(counts.n_evictions) + " evictions",
             "class=\"small muted\"");
  }
  return {
      .name = "memory-" + slug(setting.task) + "-" + slug(setting.budget),
      .choice = setting.budget,
      .svg =
          svg.finish(y + kTitle + kHeight + kBelow, "KV memory over time, " + setting.task + " at " + setting.budget),
      .caption = "First sample of " + length_text(traces.front().trace->length) + " at a budget of " + setting.budget +
                 (lines.budget ? " (dashed, " + bytes(*lines.budget) + ")" : "") +
                 ". Markers are evictions, drawn where there is room; the dotted upright is the end of the prompt, the "
                 "thin line the full cache."};
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
      section.heading = "After each eviction a line is back at its budget.";
    section.note =
        "Look at what is left once the prompt is read. What rises above the dashed budget is working space: the layer "
        "that "
        "is being read, and blocks that are not full.";
  }
  return section;
}

}  // namespace kedge::report
