#include "eval/table.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <set>
#include <vector>

namespace kedge::eval {
namespace {

template <typename... Args>
std::string text(const char* format, Args... args) {
  char buffer[128];
  std::snprintf(buffer, sizeof buffer, format, args...);
  return buffer;
}

std::string with_error(const Estimate& estimate, const char* format) {
  return estimate.n == 0 ? "" : text(format, estimate.mean, estimate.se);
}

std::string mebibytes(double bytes) { return text("%.2f", bytes / 1048576.0); }

struct Column {
  std::string head;
  std::function<std::string(const Group&)> cell;
};

std::vector<Column> all_columns() {
  return {
      {"task", [](const Group& g) { return g.task; }},
      {"policy", [](const Group& g) { return g.policy; }},
      {"budget", [](const Group& g) { return g.budget; }},
      {"length", [](const Group& g) { return g.length ? text("%.0f", *g.length) : std::string("all"); }},
      {"n", [](const Group& g) { return std::to_string(g.n); }},
      {"errors", [](const Group& g) { return g.n_errors == 0 ? "" : std::to_string(g.n_errors); }},
      {"score", [](const Group& g) { return with_error(g.score, "%.3f +- %.3f"); }},
      {"to full", [](const Group& g) { return with_error(g.difference, "%+.3f +- %.3f"); }},
      {"KLD",
       [](const Group& g) {
         const bool tiny = g.kld.mean > 0 && g.kld.mean < 1e-3;
         return with_error(g.kld, tiny ? "%.2e +- %.0e" : "%.4f +- %.4f");
       }},
      {"KLD max", [](const Group& g) { return g.kld_max ? text("%.3f", *g.kld_max) : std::string(); }},
      {"same top", [](const Group& g) { return g.same_top ? text("%.1f%%", 100 * *g.same_top) : std::string(); }},
      {"PPL", [](const Group& g) { return g.ppl ? text("%.4f", *g.ppl) : std::string(); }},
      {"PPL full", [](const Group& g) { return g.full_ppl ? text("%.4f", *g.full_ppl) : std::string(); }},
      {"kept", [](const Group& g) { return text("%.1f%%", 100 * g.keep); }},
      {"KV MiB", [](const Group& g) { return mebibytes(g.kv_live_bytes); }},
      {"peak", [](const Group& g) { return mebibytes(g.kv_peak_bytes); }},
      {"full", [](const Group& g) { return mebibytes(g.kv_full_bytes); }},
  };
}

bool several_lengths(std::span<const Group> groups, const Group& group) {
  std::set<double> lengths;
  for (const Group& other : groups) {
    if (other.task == group.task && other.length)
      lengths.insert(*other.length);
  }
  return lengths.size() > 1;
}

}  // namespace

std::string table_text(std::span<const Group> groups, const Json& noise_floor) {
  std::vector<std::vector<std::string>> lines;
  std::vector<size_t> widths;
  std::vector<const Group*> shown;
  for (const Group& group : groups) {
    if (!group.depth && (group.length || several_lengths(groups, group)))
      shown.push_back(&group);
  }
  for (const Column& column : all_columns()) {
    std::vector<std::string> cells;
    for (const Group* group : shown)
      cells.push_back(column.cell(*group));
    if (std::ranges::all_of(cells, [](const std::string& cell) { return cell.empty(); }))
      continue;
    cells.insert(cells.begin(), column.head);
    size_t width = 0;
    for (const std::string& cell : cells)
      width = std::max(width, cell.size());
    widths.push_back(width);
    lines.resize(cells.size());
    for (size_t i = 0; i < cells.size(); ++i)
      lines[i].push_back(cells[i]);
  }
  std::string out;
  for (const auto& line : lines) {
    std::string row;
    for (size_t i = 0; i < line.size(); ++i) {
      const std::string padding(widths[i] - line[i].size(), ' ');
      row += (i == 0 ? "" : "  ") + (i < 3 ? line[i] + padding : padding + line[i]);
    }
    out += row.substr(0, row.find_last_not_of(' ') + 1) + "\n";
  }
  if (!noise_floor.is_null()) {
    out += text("noise floor: KLD %.2e, same top %.1f%% (", noise_floor.at("kld_mean").get<double>(),
                100 * noise_floor.at("same_top").get<double>()) +
           noise_floor.at("what").get<std::string>() + ", nothing evicted)\n";
  }
  return out;
}

}  // namespace kedge::eval
