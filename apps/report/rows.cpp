// Who got the rows: a strip of layer x head for each policy, from the journal.
#include <algorithm>
#include <array>
#include <cmath>

#include "markup.h"
#include "palette.h"
#include "sections.h"

namespace kedge::report {
namespace {

constexpr double kLeft = 58, kTitle = 24, kGap = 16;
constexpr size_t kLevels = 32;

bool has_rows(const Trace& trace) { return trace.n_rows > 0 && !trace.mean_rows.empty(); }

struct Extent {
  double least = 0, most = 0, mean = 0;
  size_t layer_of_most = 0, head_of_most = 0, layer_of_least = 0, head_of_least = 0;
};

Extent extent_of(const Trace& trace) {
  Extent out{.least = 1e300, .most = -1};
  double sum = 0, n = 0;
  for (size_t l = 0; l < trace.mean_rows.size(); ++l) {
    for (size_t h = 0; h < trace.mean_rows[l].size(); ++h) {
      const double rows = trace.mean_rows[l][h];
      if (rows > out.most)
        out.most = rows, out.layer_of_most = l, out.head_of_most = h;
      if (rows < out.least)
        out.least = rows, out.layer_of_least = l, out.head_of_least = h;
      sum += rows;
      n += 1;
    }
  }
  out.mean = n > 0 ? sum / n : 0;
  return out;
}

size_t heads_of(const Trace& trace) {
  size_t most = 1;
  for (const auto& layer : trace.mean_rows)
    most = std::max(most, layer.size());
  return most;
}

// Cells of one level of colour as one path: a model has hundreds of heads, a page many strips.
void draw_cells(Svg& svg, const Box& box, const Trace& trace, double most) {
  std::array<std::string, kLevels> paths;
  const auto layers = static_cast<double>(trace.mean_rows.size()), heads = static_cast<double>(heads_of(trace));
  const double width = box.width / layers, height = box.height / heads;
  for (size_t l = 0; l < trace.mean_rows.size(); ++l) {
    for (size_t h = 0; h < trace.mean_rows[l].size(); ++h) {
      const double share = most > 0 ? trace.mean_rows[l][h] / most : 0;
      const auto level = std::min(kLevels - 1, static_cast<size_t>(std::max(0.0, share) * (kLevels - 1) + 0.5));
      const double x = box.x + static_cast<double>(l) * width, y = box.y + static_cast<double>(h) * height;
      const std::string across = coordinate(width - 0.7);
      paths[level] += outline({{x, y}}) + "h" + across + "v" + coordinate(height - 0.7) + "h-" + across + "z";
    }
  }
  for (size_t level = 0; level < kLevels; ++level) {
    if (!paths[level].empty())
      svg.path(paths[level], "fill=\"" + hex(ramp(static_cast<double>(level) / (kLevels - 1))) + "\"");
  }
}

Figure figure_of(const Setting& setting, const std::vector<TraceOf>& traces) {
  Svg svg;
  double most = 1, y = 0;
  for (const TraceOf& one : traces)
    most = std::max(most, extent_of(*one.trace).most);
  for (const TraceOf& one : traces) {
    const Trace& trace = *one.trace;
    const auto layers = static_cast<double>(trace.mean_rows.size()), heads = static_cast<double>(heads_of(trace));
    const Box box{.x = kLeft,
                  .y = y + kTitle,
                  .width = std::min(layers * 26, kFigureWidth - kLeft),
                  .height = heads * std::clamp(96 / heads, 4.0, 14.0)};
    const Extent extent = extent_of(trace);
    svg.text({kLeft, y + 16}, one.series->label, "class=\"strong\"");
    svg.text({kLeft + text_width(one.series->label, 16) + 12, y + 16},
             extent.least == extent.most
                 ? "every head " + real(extent.mean, 0) + " rows"
                 : real(extent.least, 0) + " to " + real(extent.most, 0) + " rows a head, mean " + real(extent.mean, 0),
             "class=\"small muted\"");
    draw_cells(svg, box, trace, most);
    svg.text({kLeft - 8, box.y + 10}, "head 0", "class=\"small\" text-anchor=\"end\"");
    if (heads > 1 && box.height >= 24) {
      svg.text({kLeft - 8, box.y + box.height - 2}, plain(heads - 1), "class=\"small\" text-anchor=\"end\"");
    }
    y = box.y + box.height + kGap;
    if (&one != &traces.back())
      continue;
    for (const double layer : linear_ticks(0, layers - 1, std::min(10, static_cast<int>(layers)))) {
      if (layer == std::floor(layer))
        svg.text({box.x + (layer + 0.5) * box.width / layers, y}, plain(layer),
                 "class=\"small\" text-anchor=\"middle\"");
    }
    svg.text({kLeft - 8, y}, "layer", "class=\"small\" text-anchor=\"end\"");
  }
  y = colour_bar(svg, {kLeft, y + 18}, {"0", real(most / 2, 0), real(most, 0)}, "rows held");
  return {.name = "rows-" + slug(setting.task) + "-" + slug(setting.budget),
          .choice = setting.budget,
          .svg = svg.finish(y, "Rows by layer and head, " + setting.task + " at " + setting.budget),
          .caption = "Rows held after the eviction, mean over samples of " + length_text(traces.front().trace->length) +
                     ", at a budget of " + setting.budget + "."};
}

std::string heading_of(const Setting& setting, const std::vector<TraceOf>& traces) {
  std::vector<std::string> even;
  const TraceOf* uneven = nullptr;
  double widest = 0;
  for (const TraceOf& one : traces) {
    const Extent extent = extent_of(*one.trace);
    const double ratio = extent.most / std::max(extent.least, 1.0);
    if (extent.most - extent.least <= 1)
      even.push_back(one.series->label);
    else if (ratio > widest)
      widest = ratio, uneven = &one;
  }
  std::string out;
  if (uneven != nullptr) {
    const Extent e = extent_of(*uneven->trace);
    const auto place = [](size_t layer, size_t head, double rows) {
      return "layer " + std::to_string(layer) + ", head " + std::to_string(head) + " (" + real(rows, 0) + ")";
    };
    out = "At a budget of " + setting.budget + " " + uneven->series->label + " gives most rows to " +
          place(e.layer_of_most, e.head_of_most, e.most) + " and fewest to " +
          place(e.layer_of_least, e.head_of_least, e.least);
  }
  if (!even.empty())
    out +=
        (out.empty() ? "" : "; ") + listed(even, 4) + (even.size() > 1 ? " give" : " gives") + " every head the same";
  return out.empty() ? "Look for bright columns: layers that are given more." : out + ".";
}

}  // namespace

Section rows_section(const Comparison& comparison) {
  Section section{.id = "rows", .kicker = "Rows per layer and head"};
  for (const std::string& task : comparison.tasks()) {
    const Setting telling = telling_setting(comparison, task);
    FigureSet set{.title = task, .label = "Budget", .first = telling.budget};
    for (const std::string& budget : comparison.budgets()) {
      const Setting setting{.task = task, .budget = budget};
      std::vector<TraceOf> traces = longest_traces(comparison, setting, has_rows);
      std::erase_if(traces, [](const TraceOf& one) { return one.series->is_full(); });
      if (traces.empty())
        continue;
      set.figures.push_back(figure_of(setting, traces));
      if (section.heading.empty() && budget == telling.budget)
        section.heading = heading_of(setting, traces);
    }
    if (!set.figures.empty())
      section.sets.push_back(std::move(set));
  }
  if (section.sets.empty()) {
    section.heading = "Who got the rows was not recorded.";
    section.note = any_journal(comparison) ? "The journals of these runs have no rows_per_head."
                                           : "The figure needs journal.jsonl, which these runs do not have.";
  } else {
    section.note = "Bright cells hold more rows. All strips of a figure share one scale.";
  }
  return section;
}

}  // namespace kedge::report
