// The runs side by side: which settings there are, which group is which, and who is best where.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "chart.h"
#include "run.h"
#include "statistics.h"

namespace kedge::report {

// What a task is judged by: the score where there is one, else the divergence, else the likelihood.
enum class Measure { score, kld, nll };

// A policy of a run.
struct Series {
  size_t run = 0;
  std::string policy;
  std::string label;  // "andpro", with several runs "andpro (run)"
  Style style;
  bool is_full() const { return policy == "none"; }
};

// One column of a comparison. No length: all lengths together.
struct Setting {
  std::string task, budget;
  Number length;
};

struct Verdict {
  const Series* best = nullptr;  // nullptr: nothing to compare
  const Series* second = nullptr;
  PairedDifference lead;  // of best over second, in the measure's direction
  bool significant() const { return second != nullptr && lead.p < kSignificant; }
};

class Comparison {
 public:
  explicit Comparison(const std::vector<Run>& runs);  // keeps a reference

  const std::vector<Run>& runs() const { return runs_; }
  const std::vector<Series>& series() const { return series_; }
  const std::vector<std::string>& tasks() const { return tasks_; }
  const std::vector<std::string>& budgets() const { return budgets_; }  // of policies that evict, largest first
  std::vector<double> lengths(const std::string& task) const;           // growing
  // The lengths, and first all of them together where metrics.json has that; only that where there are more
  // than 24.
  std::vector<Number> length_choices(const std::string& task) const;

  // The full cache is the same at every budget. nullptr: no such group.
  const Group* find(const Series& series, const Setting& setting, Number depth = {}) const;
  const Group* full(size_t run, const Setting& setting) const;
  const Series* series_of(size_t run, const std::string& policy) const;

  Measure measure(const std::string& task) const;
  // More is better: the score, or minus the divergence or log perplexity.
  static Number value(const Group& group, Measure measure);

  // Best and second by their means over all policies that evict, of all runs; the test over samples that both have, of
  // two runs only where they are of one text and seed.
  Verdict verdict(const Setting& setting) const;

 private:
  using GroupKey = std::tuple<size_t, std::string, std::string, std::string, double, double>;
  struct SampleValue {
    Number length;
    double sum = 0;
    double n = 0;
  };
  using Samples = std::map<std::string, SampleValue>;

  void add_series();
  void add_samples();
  const Samples* samples(const Series& series, const Setting& setting) const;

  const std::vector<Run>& runs_;
  std::vector<Series> series_;
  std::vector<std::string> tasks_, budgets_;
  std::map<std::string, Measure> measures_;
  std::map<GroupKey, const Group*> groups_;
  std::map<std::tuple<size_t, std::string, std::string, std::string>, Samples> samples_;
};

std::string length_text(Number length);  // "1024 tokens", "all lengths"

}  // namespace kedge::report
