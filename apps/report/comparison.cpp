#include "comparison.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "markup.h"

namespace kedge::report {
namespace {

constexpr size_t kMostLengths = 24;  // a task of lines has as many lengths as lines
constexpr double kAll = -1;          // in keys: no length or no depth

void add_once(std::vector<std::string>& list, const std::string& word) {
  if (std::find(list.begin(), list.end(), word) == list.end())
    list.push_back(word);
}

Number sample_value(const Prediction& row, Measure measure) {
  switch (measure) {
    case Measure::score:
      return row.score;
    case Measure::kld:
      return row.kld_mean ? Number(-*row.kld_mean) : Number();
    case Measure::nll:
      return row.nll ? Number(-*row.nll) : Number();
  }
  return {};
}

// Sample ids say which place of the grid it is; what stands there comes from text and seed.
bool same_work(const Run& a, const Run& b) {
  return a.config.seed == b.config.seed && a.config.file_sha256 == b.config.file_sha256;
}

}  // namespace

std::string length_text(Number length) { return length ? plain(*length) + " tokens" : "all lengths"; }

Comparison::Comparison(const std::vector<Run>& runs) : runs_(runs) {
  std::map<std::string, double> keep;  // largest share of each budget
  for (size_t r = 0; r < runs.size(); ++r) {
    for (const Group& group : runs[r].groups) {
      const std::string budget = group.policy == "none" ? "" : group.budget;
      groups_[{r, group.task, group.policy, budget, group.length.value_or(kAll), group.depth.value_or(kAll)}] = &group;
      add_once(tasks_, group.task);
      if (group.policy != "none") {
        add_once(budgets_, group.budget);
        keep[group.budget] = std::max(keep[group.budget], group.keep.value_or(0));
      }
      const auto found = measures_.emplace(group.task, Measure::nll).first;
      if (group.score)
        found->second = Measure::score;
      else if (group.kld_mean && found->second == Measure::nll)
        found->second = Measure::kld;
    }
  }
  std::stable_sort(budgets_.begin(), budgets_.end(),
                   [&](const std::string& a, const std::string& b) { return keep[a] > keep[b]; });
  add_series();
  add_samples();
}

void Comparison::add_series() {
  std::vector<std::string> policies;  // colours by policy, in the order they are met
  for (size_t r = 0; r < runs_.size(); ++r) {
    std::vector<std::string> names = {"none"};
    for (const PolicyEntry& policy : runs_[r].config.policies)
      add_once(names, policy.name);
    for (const std::string& name : names) {
      const auto has = [&](const Group& group) { return group.policy == name; };
      if (std::none_of(runs_[r].groups.begin(), runs_[r].groups.end(), has))
        continue;
      if (name != "none")
        add_once(policies, name);
      const auto colour = std::find(policies.begin(), policies.end(), name) - policies.begin();
      const std::string label = name == "none" ? "full cache" : name;
      series_.push_back(
          {.run = r,
           .policy = name,
           .label = runs_.size() > 1 ? label + " (" + runs_[r].name + ")" : label,
           .style = {.colour = name == "none" ? -1 : static_cast<int>(colour), .run = static_cast<int>(r)}});
    }
  }
}

void Comparison::add_samples() {
  for (size_t r = 0; r < runs_.size(); ++r) {
    for (const Prediction& row : runs_[r].predictions) {
      const Number value = sample_value(row, measure(row.task));
      if (!value)
        continue;
      const std::string budget = row.policy == "none" ? "" : row.budget;
      SampleValue& sample = samples_[{r, row.task, row.policy, budget}][row.sample];
      sample.length = row.length;
      sample.sum += *value;
      sample.n += 1;
    }
  }
}

std::vector<double> Comparison::lengths(const std::string& task) const {
  std::set<double> found;
  for (const auto& [key, group] : groups_) {
    if (group->task == task && group->length)
      found.insert(*group->length);
  }
  return {found.begin(), found.end()};
}

std::vector<Number> Comparison::length_choices(const std::string& task) const {
  std::vector<Number> out;
  const std::vector<double> each = lengths(task);
  const auto pooled = [&](const auto& entry) {
    const Group& group = *entry.second;
    return group.task == task && !group.length && !group.depth;
  };
  if (each.size() != 1 && std::any_of(groups_.begin(), groups_.end(), pooled))
    out.emplace_back();
  if (!out.empty() && each.size() > kMostLengths)
    return out;
  for (const double length : each)
    out.emplace_back(length);
  return out;
}

const Group* Comparison::find(const Series& series, const Setting& setting, Number depth) const {
  const std::string budget = series.is_full() ? "" : setting.budget;
  const auto found = groups_.find(
      {series.run, setting.task, series.policy, budget, setting.length.value_or(kAll), depth.value_or(kAll)});
  return found == groups_.end() ? nullptr : found->second;
}

const Group* Comparison::full(size_t run, const Setting& setting) const {
  return find({.run = run, .policy = "none"}, setting);
}

const Series* Comparison::series_of(size_t run, const std::string& policy) const {
  for (const Series& series : series_) {
    if (series.run == run && series.policy == policy)
      return &series;
  }
  return nullptr;
}

Measure Comparison::measure(const std::string& task) const {
  const auto found = measures_.find(task);
  return found == measures_.end() ? Measure::score : found->second;
}

Number Comparison::value(const Group& group, Measure measure) {
  switch (measure) {
    case Measure::score:
      return group.score;
    case Measure::kld:
      return group.kld_mean ? Number(-*group.kld_mean) : Number();
    case Measure::nll:
      return group.ppl && *group.ppl > 0 ? Number(-std::log(*group.ppl)) : Number();
  }
  return {};
}

const Comparison::Samples* Comparison::samples(const Series& series, const Setting& setting) const {
  const auto found = samples_.find({series.run, setting.task, series.policy, setting.budget});
  return found == samples_.end() ? nullptr : &found->second;
}

Verdict Comparison::verdict(const Setting& setting) const {
  std::vector<std::pair<double, const Series*>> ranked;
  for (const Series& one : series_) {
    const Group* group = one.is_full() ? nullptr : find(one, setting);
    if (const Number mean = group == nullptr ? Number() : value(*group, measure(setting.task)))
      ranked.emplace_back(*mean, &one);
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  Verdict out;
  if (!ranked.empty())
    out.best = ranked[0].second;
  if (ranked.size() < 2)
    return out;
  out.second = ranked[1].second;
  const Samples* of_best = samples(*out.best, setting);
  const bool same = same_work(runs_[out.best->run], runs_[out.second->run]);
  const Samples* of_second = same ? samples(*out.second, setting) : nullptr;
  std::vector<double> a, b;
  for (const auto& [id, mine] : of_best != nullptr ? *of_best : Samples()) {
    if (of_second == nullptr || (setting.length && mine.length != setting.length))
      continue;
    if (const auto other = of_second->find(id); other != of_second->end()) {
      a.push_back(mine.sum / mine.n);
      b.push_back(other->second.sum / other->second.n);
    }
  }
  out.lead = paired_difference(
      a, b, static_cast<uint64_t>(std::clamp(runs_[out.best->run].config.seed.value_or(0), 0.0, 1e15)));
  return out;
}

}  // namespace kedge::report
