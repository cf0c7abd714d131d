// The map every paper prints: where in a context of which length a needle is still found. One panel a policy, all at
// the same budget; the value stands in the cell.
#include <algorithm>
#include <set>

#include "markup.h"
#include "palette.h"
#include "sections.h"

namespace kedge::report {
namespace {

constexpr double kLeft = 52, kGap = 26, kCellHeight = 22, kTitle = 24, kBelow = 24;

struct Grid {
  std::string task;
  std::vector<double> lengths, depths;
};

struct Cell {
  const Group* group = nullptr;
  double length = 0, depth = 0;
};

Grid grid_of(const Comparison& comparison, const std::string& task) {
  std::set<double> lengths, depths;
  for (const Run& run : comparison.runs()) {
    for (const Group& group : run.groups) {
      if (group.task == task && group.length && group.depth && group.score) {
        lengths.insert(*group.length);
        depths.insert(*group.depth);
      }
    }
  }
  return {.task = task, .lengths = {lengths.begin(), lengths.end()}, .depths = {depths.begin(), depths.end()}};
}

std::vector<Cell> cells_of(const Comparison& comparison, const Grid& grid, const Series& series,
                           const std::string& budget) {
  std::vector<Cell> cells;
  for (const double length : grid.lengths) {
    for (const double depth : grid.depths) {
      const Setting setting{.task = grid.task, .budget = budget, .length = length};
      cells.push_back({.group = comparison.find(series, setting, depth), .length = length, .depth = depth});
    }
  }
  return cells;
}

bool has_score(const Cell& cell) { return cell.group != nullptr && cell.group->score; }

struct Layout {
  size_t per_row = 1;
  double cell_width = 40;
  double panel_width = 0, panel_height = 0;
};

Layout layout_of(const Grid& grid, size_t n_panels) {
  const double room = kFigureWidth - kLeft, n = static_cast<double>(grid.lengths.size());
  Layout out;
  const auto fit = static_cast<size_t>((room + kGap) / (n * 38 + kGap));
  out.per_row = std::clamp<size_t>(fit, 1, std::min<size_t>(4, n_panels));
  if (n_panels > out.per_row) {  // rows of nearly equal length
    const size_t rows = (n_panels + out.per_row - 1) / out.per_row;
    out.per_row = (n_panels + rows - 1) / rows;
  }
  const auto across = static_cast<double>(out.per_row);
  out.cell_width = std::min(60.0, (room - (across - 1) * kGap) / across / n);
  out.panel_width = n * out.cell_width;
  out.panel_height = kTitle + static_cast<double>(grid.depths.size()) * kCellHeight + kBelow;
  return out;
}

void draw_cell(Svg& svg, const Box& box, const Cell& cell) {
  const double middle = box.x + box.width / 2, base = box.y + box.height / 2 + 4;
  if (!has_score(cell)) {
    svg.rect(box, "class=\"empty\"");
    svg.text({middle, base}, "\u2013", "class=\"small\" text-anchor=\"middle\"");
    return;
  }
  const double score = *cell.group->score;
  const Rgb colour = ramp(score);
  svg.rect(box, "class=\"cell\" fill=\"" + hex(colour) + "\" data-score=\"" + real(score, 4) + "\"");
  svg.text({middle, base}, real(100 * score, 0), "class=\"small " + ink_on(colour) + "\" text-anchor=\"middle\"");
}

void draw_panel(Svg& svg, Point at, const Grid& grid, const Layout& layout, const Series& series,
                const std::vector<Cell>& cells) {
  double sum = 0, n = 0;
  svg.open("data-series=\"" + escape(series.label) + "\"");
  for (size_t i = 0; i < cells.size(); ++i) {
    const auto column = static_cast<double>(i / grid.depths.size()), row = static_cast<double>(i % grid.depths.size());
    draw_cell(svg,
              {.x = at.x + column * layout.cell_width,
               .y = at.y + kTitle + row * kCellHeight,
               .width = layout.cell_width - 1,
               .height = kCellHeight - 1},
              cells[i]);
    if (has_score(cells[i])) {
      sum += *cells[i].group->score;
      n += 1;
    }
  }
  svg.close();
  const size_t room = std::max<size_t>(4, static_cast<size_t>(layout.panel_width / 7.6));
  const std::string mean = n > 0 ? real(100 * sum / n, 0) : "";
  std::string title = shortened(series.label, room);
  if (title.size() + mean.size() + 8 < room)
    title += ", mean " + mean;
  svg.text({at.x, at.y + 16}, title, "class=\"strong\"");
  const double below = at.y + layout.panel_height - kBelow + 14;
  double free_from = -1e9;
  for (size_t i = 0; i < grid.lengths.size(); ++i) {
    const std::string label = plain(grid.lengths[i]);
    const double middle = at.x + (static_cast<double>(i) + 0.5) * layout.cell_width;
    const double half = text_width(label, 12) / 2;
    if (middle - half < free_from)
      continue;
    svg.text({middle, below}, label, "class=\"small\" text-anchor=\"middle\"");
    free_from = middle + half + 4;
  }
}

Figure figure_of(const Comparison& comparison, const Grid& grid, const std::string& budget) {
  std::vector<std::pair<const Series*, std::vector<Cell>>> panels;
  for (const Series& series : comparison.series()) {
    std::vector<Cell> cells = cells_of(comparison, grid, series, budget);
    if (std::any_of(cells.begin(), cells.end(), has_score))
      panels.emplace_back(&series, std::move(cells));
  }
  const Layout layout = layout_of(grid, panels.size());
  Svg svg;
  double y = 0;
  for (size_t i = 0; i < panels.size(); ++i) {
    const size_t column = i % layout.per_row;
    y = static_cast<double>(i / layout.per_row) * (layout.panel_height + 10);
    const double x = kLeft + static_cast<double>(column) * (layout.panel_width + kGap);
    draw_panel(svg, {x, y}, grid, layout, *panels[i].first, panels[i].second);
    for (size_t d = 0; column == 0 && d < grid.depths.size(); ++d) {
      svg.text({kLeft - 8, y + kTitle + static_cast<double>(d) * kCellHeight + 15}, percent(grid.depths[d]),
               "class=\"small\" text-anchor=\"end\"");
    }
  }
  y = colour_bar(svg, {kLeft, y + layout.panel_height + 14}, {"0", "50", "100"}, "score, %");
  svg.text({kFigureWidth, y - 22}, "across: tokens of context; down: depth of the needle",
           "class=\"small muted\" text-anchor=\"end\"");
  const std::string label = "Needle heat map of " + grid.task + " at a budget of " + budget;
  return {.name = "heatmap-" + slug(grid.task) + "-" + slug(budget),
          .choice = budget,
          .svg = svg.finish(y, label),
          .caption = "Score in % by length and depth, all policies at a budget of " + budget + "."};
}

// "At 10% andpro is weakest at 2048 tokens, depth 50 % (33 %), random ..."
std::string weakest(const Comparison& comparison, const Grid& grid, const Setting& setting) {
  const Verdict verdict = comparison.verdict(setting);
  if (verdict.best == nullptr)
    return "Look for dark cells: there the needle is lost.";
  const Cell* low = nullptr;
  const std::vector<Cell> cells = cells_of(comparison, grid, *verdict.best, setting.budget);
  size_t n_low = 0, n_cells = 0;
  for (const Cell& cell : cells) {
    if (!has_score(cell))
      continue;
    ++n_cells;
    if (low == nullptr || *cell.group->score < *low->group->score) {
      low = &cell;
      n_low = 0;
    }
    n_low += *cell.group->score == *low->group->score ? 1 : 0;
  }
  if (low == nullptr)
    return "Look for dark cells: there the needle is lost.";
  const std::string of = "Look for dark cells: at a budget of " + setting.budget + " " + verdict.best->label;
  if (*low->group->score == 1)
    return of + ", the best there, finds every needle.";
  if (n_low == n_cells)
    return of + ", the best there, scores " + percent(*low->group->score) + " everywhere.";
  const std::string more = n_low > 1 ? " and in " + std::to_string(n_low - 1) + " more cells" : "";
  return of + ", the best there, falls to " + percent(*low->group->score) + " at " + length_text(low->length) +
         ", depth " + percent(low->depth) + more + ".";
}

}  // namespace

Section heatmap_section(const Comparison& comparison) {
  Section section{.id = "heatmap", .kicker = "Needle heat map"};
  for (const std::string& task : comparison.tasks()) {
    const Grid grid = grid_of(comparison, task);
    if (grid.depths.empty())
      continue;
    const Setting telling = telling_setting(comparison, task);
    if (section.heading.empty())
      section.heading = weakest(comparison, grid, telling);
    FigureSet set{.title = task, .label = "Budget", .first = telling.budget};
    for (const std::string& budget : comparison.budgets())
      set.figures.push_back(figure_of(comparison, grid, budget));
    section.sets.push_back(std::move(set));
  }
  if (section.sets.empty()) {
    section.heading = "No task of these runs has depths.";
    section.note = "The map needs groups with a length and a depth in metrics.json (the task needle).";
  } else {
    section.note = "Light is found, dark is lost; the number is the score in %. Each policy held the same budget.";
  }
  return section;
}

}  // namespace kedge::report
