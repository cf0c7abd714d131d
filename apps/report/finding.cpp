#include <algorithm>

#include "markup.h"
#include "palette.h"
#include "sections.h"

namespace kedge::report {
namespace {

struct Extremes {
  const Series *best = nullptr, *worst = nullptr;
  const Group *best_group = nullptr, *worst_group = nullptr;
  double spread = 0;
};

Extremes extremes(const Comparison& comparison, const Setting& setting) {
  Extremes out;
  const Measure measure = comparison.measure(setting.task);
  double high = 0, low = 0;
  for (const Series& series : comparison.series()) {
    const Group* group = series.is_full() ? nullptr : comparison.find(series, setting);
    const Number value = group == nullptr ? Number() : Comparison::value(*group, measure);
    if (!value)
      continue;
    if (out.best == nullptr || *value > high) {
      out.best = &series, out.best_group = group;
      high = *value;
    }
    if (out.worst == nullptr || *value < low) {
      out.worst = &series, out.worst_group = group;
      low = *value;
    }
  }
  out.spread = high - low;
  return out;
}

std::string certainty(const Comparison& comparison, const Setting& setting) {
  const Verdict verdict = comparison.verdict(setting);
  if (verdict.second == nullptr)
    return "";
  if (verdict.lead.n == 0)
    return " " + verdict.second->label + ", the next, has no samples in common with it.";
  const std::string p = verdict.lead.p < 0.001 ? "p < 0.001" : "p = " + real(verdict.lead.p, 3);
  const std::string over = "The lead over " + verdict.second->label;
  return verdict.significant() ? " " + over + " is more than chance (" + p + ")."
                               : " " + over + " may be chance (" + p + ").";
}

std::string score_finding(const Comparison& comparison, const Setting& setting, const Extremes& ends) {
  const auto words = [&](const Series& series, const Group& group, bool first) {
    const Group* full = comparison.full(series.run, setting);
    if (full != nullptr && full->score && *full->score > 0) {
      const std::string share = percent(*group.score / *full->score);
      return series.label + (first ? " keeps " + share + " of the full cache's score" : " " + share);
    }
    return series.label + (first ? " scores " : " ") + percent(*group.score);
  };
  std::string out = "At a budget of " + setting.budget + " " + words(*ends.best, *ends.best_group, true);
  if (ends.worst != ends.best)
    out += ", " + words(*ends.worst, *ends.worst_group, false);
  return out + ".";
}

std::string kld_finding(const Comparison& comparison, const Setting& setting, const Extremes& ends) {
  std::string out = "At a budget of " + setting.budget + " " + ends.best->label +
                    " stays nearest to the full cache (KLD " + significant(*ends.best_group->kld_mean);
  const auto& floor = comparison.runs()[ends.best->run].noise_floor;
  if (floor && floor->kld_mean > 0)
    out += ", " + real(*ends.best_group->kld_mean / floor->kld_mean, 1) + " times the noise floor";
  out += ")";
  if (ends.worst != ends.best)
    out += ", " + ends.worst->label + " is furthest (" + significant(*ends.worst_group->kld_mean) + ")";
  return out + ".";
}

std::string ppl_finding(const Setting& setting, const Extremes& ends) {
  std::string out = "At a budget of " + setting.budget + " " + ends.best->label + " has the lowest perplexity (" +
                    real(*ends.best_group->ppl, 2);
  if (ends.best_group->full_ppl)
    out += ", full cache " + real(*ends.best_group->full_ppl, 2);
  out += ")";
  if (ends.worst != ends.best)
    out += ", " + ends.worst->label + " the highest (" + real(*ends.worst_group->ppl, 2) + ")";
  return out + ".";
}

}  // namespace

std::string finding(const Comparison& comparison, const Setting& setting) {
  const Extremes ends = extremes(comparison, setting);
  if (ends.best == nullptr)
    return "";
  std::string out;
  switch (comparison.measure(setting.task)) {
    case Measure::score:
      out = score_finding(comparison, setting, ends);
      break;
    case Measure::kld:
      out = kld_finding(comparison, setting, ends);
      break;
    case Measure::nll:
      out = ppl_finding(setting, ends);
      break;
  }
  return out + certainty(comparison, setting);
}

Setting telling_setting(const Comparison& comparison, const std::string& task) {
  Setting out{.task = task};
  const std::vector<Number> lengths = comparison.length_choices(task);
  double widest = -1;
  for (const std::string& budget : comparison.budgets()) {
    const Setting setting{.task = task, .budget = budget, .length = lengths.empty() ? Number() : lengths.front()};
    const Extremes ends = extremes(comparison, setting);
    if (ends.best != nullptr && ends.spread > widest) {
      widest = ends.spread;
      out = setting;
    }
  }
  return out;
}

double colour_bar(Svg& svg, Point at, const std::vector<std::string>& labels, const std::string& title) {
  constexpr int kSteps = 32;
  constexpr double kWidth = 224, kHeight = 12;
  svg.text({at.x, at.y + 10}, title, "class=\"small\"");
  const double x = at.x + text_width(title, 12) + 20;
  for (int i = 0; i < kSteps; ++i) {
    svg.rect({.x = x + i * kWidth / kSteps, .y = at.y, .width = kWidth / kSteps + 0.4, .height = kHeight},
             "fill=\"" + hex(ramp(i / (kSteps - 1.0))) + "\"");
  }
  for (size_t i = 0; i < labels.size(); ++i) {
    const double share = labels.size() > 1 ? static_cast<double>(i) / static_cast<double>(labels.size() - 1) : 0.5;
    svg.text({x + share * kWidth, at.y + kHeight + 14}, labels[i], "class=\"small\" text-anchor=\"middle\"");
  }
  return at.y + kHeight + 20;
}

std::vector<TraceOf> longest_traces(const Comparison& comparison, const Setting& setting, TraceTest wanted) {
  std::vector<TraceOf> all, out;
  double longest = -2;
  for (const Series& series : comparison.series()) {
    const Run& run = comparison.runs()[series.run];
    if (!run.traces)
      continue;
    for (const Trace& trace : *run.traces) {
      const bool budget = series.is_full() || trace.budget == setting.budget;
      if (trace.policy != series.policy || trace.task != setting.task || !budget || !wanted(trace))
        continue;
      all.push_back({.series = &series, .trace = &trace});
      longest = std::max(longest, trace.length.value_or(-1));
    }
  }
  for (const TraceOf& one : all) {
    const bool seen = !out.empty() && out.back().series == one.series;
    if (one.trace->length.value_or(-1) == longest && !seen)
      out.push_back(one);
  }
  return out;
}

bool any_journal(const Comparison& comparison) {
  for (const Run& run : comparison.runs()) {
    if (run.traces)
      return true;
  }
  return false;
}

}  // namespace kedge::report
