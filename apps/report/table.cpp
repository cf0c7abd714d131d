// Every group as a row. Bold only where the data say that there is a winner.
#include <algorithm>
#include <map>

#include "markup.h"
#include "sections.h"

namespace kedge::report {
namespace {

constexpr size_t kMostRows = 2000;

struct Row {
  const Series* series = nullptr;
  const Group* group = nullptr;
  Setting setting;
};

struct Column {
  const char* title;
  const char* hint;
  bool filter;                          // words to choose from rather than numbers
  Number (*value)(const Group& group);  // what it is sorted by; words have none
  std::string (*text)(const Row& row, const Run& run);
};

std::string with_error(Number value, Number error, double factor, int decimals) {
  if (!value)
    return "";
  std::string out = real(factor * *value, decimals);
  return error ? out + " \u00b1 " + real(factor * *error, decimals) : out;
}

std::string small_number(Number value) { return value ? significant(*value) : ""; }

std::string kld_text(const Row& row, const Run& run) {
  const Group& g = *row.group;
  if (!g.kld_mean)
    return "";
  std::string out = small_number(g.kld_mean);
  if (g.kld_se)
    out += " \u00b1 " + small_number(g.kld_se);
  return run.noise_floor ? out + " (floor " + small_number(run.noise_floor->kld_mean) + ")" : out;
}

const std::vector<Column>& columns() {
  static const std::vector<Column> all = {
      {"run", "folder of the run", true, nullptr, [](const Row&, const Run& run) { return run.name; }},
      {"task", "", true, nullptr, [](const Row& row, const Run&) { return row.group->task; }},
      {"policy", "none is the full cache", true, nullptr, [](const Row& row, const Run&) { return row.group->policy; }},
      {"budget", "", true, nullptr, [](const Row& row, const Run&) { return row.group->budget; }},
      {"length", "tokens of context", true, [](const Group& g) { return g.length ? g.length : Number(-1); },
       [](const Row& row, const Run&) { return row.group->length ? plain(*row.group->length) : std::string("all"); }},
      {"n", "cells", false, [](const Group& g) { return Number(static_cast<double>(g.n)); },
       [](const Row& row, const Run&) {
         const int64_t errors = row.group->n_errors;
         return std::to_string(row.group->n) + (errors > 0 ? " (" + std::to_string(errors) + " failed)" : "");
       }},
      {"score, %", "mean \u00b1 standard error", false, [](const Group& g) { return g.score; },
       [](const Row& row, const Run&) { return with_error(row.group->score, row.group->score_se, 100, 1); }},
      {"to full, %", "mean paired difference to the full cache \u00b1 standard error", false,
       [](const Group& g) { return g.difference; },
       [](const Row& row, const Run&) { return with_error(row.group->difference, row.group->difference_se, 100, 1); }},
      {"KLD", "nats to the full cache \u00b1 standard error; less is nearer", false,
       [](const Group& g) { return g.kld_mean; }, kld_text},
      {"KLD p99", "", false, [](const Group& g) { return g.kld_p99; },
       [](const Row& row, const Run&) { return small_number(row.group->kld_p99); }},
      {"same top, %", "how often the likeliest token is the full cache's", false,
       [](const Group& g) { return g.same_top; },
       [](const Row& row, const Run&) { return with_error(row.group->same_top, {}, 100, 1); }},
      {"PPL", "perplexity", false, [](const Group& g) { return g.ppl; },
       [](const Row& row, const Run&) { return with_error(row.group->ppl, {}, 1, 2); }},
      {"keep, %", "rows held after the eviction, of a full cache", false, [](const Group& g) { return g.keep; },
       [](const Row& row, const Run&) { return with_error(row.group->keep, {}, 100, 1); }},
      {"KV held", "after the eviction", false, [](const Group& g) { return g.kv_live_bytes; },
       [](const Row& row, const Run&) { return row.group->kv_live_bytes ? bytes(*row.group->kv_live_bytes) : ""; }},
      {"KV peak", "most ever held", false, [](const Group& g) { return g.kv_peak_bytes; },
       [](const Row& row, const Run&) { return row.group->kv_peak_bytes ? bytes(*row.group->kv_peak_bytes) : ""; }},
  };
  return all;
}

std::vector<Row> rows_of(const Comparison& comparison) {
  std::vector<Row> rows;
  const std::vector<std::string> once = {""};
  for (const std::string& task : comparison.tasks()) {
    for (const Number length : comparison.length_choices(task)) {
      for (const Series& series : comparison.series()) {
        for (const std::string& budget : series.is_full() ? once : comparison.budgets()) {
          const Setting setting{.task = task, .budget = budget, .length = length};
          if (const Group* group = comparison.find(series, setting))
            rows.push_back({.series = &series, .group = group, .setting = setting});
        }
      }
    }
  }
  return rows;
}

using Verdicts = std::map<std::tuple<std::string, std::string, double>, Verdict>;

const Verdict& verdict_of(const Comparison& comparison, const Setting& setting, Verdicts& known) {
  const auto [found, is_new] = known.try_emplace({setting.task, setting.budget, setting.length.value_or(-1)});
  if (is_new)
    found->second = comparison.verdict(setting);
  return found->second;
}

// The column that the task is judged by.
const char* judged(Measure measure) {
  switch (measure) {
    case Measure::score:
      return "score, %";
    case Measure::kld:
      return "KLD";
    case Measure::nll:
      return "PPL";
  }
  return "";
}

std::string cell_html(const Column& column, const Row& row, const Comparison& comparison, const Verdict& verdict) {
  const std::string text = escape(column.text(row, comparison.runs()[row.series->run]));
  const Number value = column.value == nullptr ? Number() : column.value(*row.group);
  std::string open = value ? "<td data-v=\"" + plain(*value) + "\">" : "<td>";
  const bool wins = verdict.best == row.series && verdict.significant() &&
                    std::string_view(column.title) == judged(comparison.measure(row.setting.task));
  if (!wins)
    return open + text + "</td>";
  const std::string why = "better than " + verdict.second->label + ", p = " + real(verdict.lead.p, 4) + " over " +
                          std::to_string(verdict.lead.n) + " samples";
  return open + "<strong title=\"" + escape(why) + "\">" + text + "</strong></td>";
}

std::string head_html(const std::vector<Column>& shown) {
  std::string out = "<thead><tr>";
  for (const Column& column : shown) {
    out += std::string("<th scope=\"col\"") + (column.filter ? " data-filter" : "") + " title=\"" +
           escape(column.hint) + "\">" + escape(column.title) + "</th>";
  }
  return out + "</tr></thead>";
}

}  // namespace

Section table_section(const Comparison& comparison) {
  std::vector<Row> rows = rows_of(comparison);
  const size_t n_rows = rows.size();
  rows.resize(std::min(n_rows, kMostRows));
  std::vector<Column> shown;
  for (const Column& column : columns()) {
    const bool is_run = std::string_view(column.title) == "run";
    const auto filled = [&](const Row& row) { return !column.text(row, comparison.runs()[row.series->run]).empty(); };
    if (is_run ? comparison.runs().size() > 1 : std::any_of(rows.begin(), rows.end(), filled))
      shown.push_back(column);
  }
  Verdicts verdicts;
  std::string body = "<tbody>";
  for (const Row& row : rows) {
    static const Verdict kNone;
    const Verdict& verdict = row.series->is_full() ? kNone : verdict_of(comparison, row.setting, verdicts);
    body += row.series->is_full() ? "<tr class=\"full\">" : "<tr>";
    for (const Column& column : shown)
      body += cell_html(column, row, comparison, verdict);
    body += "</tr>\n";
  }
  int64_t n_won = 0, n_compared = 0;
  for (const auto& [key, verdict] : verdicts) {
    n_compared += verdict.second != nullptr ? 1 : 0;
    n_won += verdict.significant() ? 1 : 0;
  }
  Section section{.id = "table", .kicker = "All groups"};
  section.heading = n_compared == 0
                        ? "One row a group; there is nothing to compare."
                        : "In " + std::to_string(n_won) + " of " + std::to_string(n_compared) +
                              " settings the best policy's lead is more than chance; only there it is bold.";
  section.note =
      "A setting is a task, budget and length. The lead of the best over the runner-up is tested over the samples that "
      "both have (paired randomisation test, two-sided, p < 0.05); fewer than 6 samples, or runs of other texts or "
      "seeds, "
      "can prove nothing. The full cache (none) is no contender.";
  if (n_rows > rows.size())
    section.note += " The first " + std::to_string(rows.size()) + " of " + std::to_string(n_rows) + " rows.";
  section.html =
      "<div class=\"scroll\"><table class=\"sortable\">" + head_html(shown) + body + "</tbody></table></div>";
  return section;
}

}  // namespace kedge::report
