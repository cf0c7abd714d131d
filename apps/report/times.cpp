// Where the seconds went: prompt, answer and policy, from timings.json.
#include <algorithm>
#include <array>
#include <tuple>

#include "markup.h"
#include "sections.h"

namespace kedge::report {
namespace {

constexpr double kLeft = 190, kRight = 190, kBar = 18, kStep = 24;
constexpr size_t kMostBars = 60;
constexpr std::array<const char*, 3> kParts = {"prompt", "answer", "policy"};

std::array<double, 3> parts_of(const Timing& timing) {
  return {timing.prefill_s.value_or(0), timing.decode_s.value_or(0), timing.policy_ms.value_or(0) / 1000};
}

double total_of(const Timing& timing) {
  const auto parts = parts_of(timing);
  return parts[0] + parts[1] + parts[2];
}

double draw_legend(Svg& svg) {
  double x = kLeft;
  for (size_t i = 0; i < kParts.size(); ++i) {
    svg.rect({.x = x, .y = 4, .width = 14, .height = 12}, "class=\"t" + std::to_string(i) + "\"");
    svg.text({x + 20, 14}, kParts[i], "class=\"small\"");
    x += 34 + text_width(kParts[i], 12) + 14;
  }
  return 28;
}

Figure figure_of(const Run& run, const std::vector<Timing>& timings) {
  Svg svg;
  double longest = 0, y = draw_legend(svg);
  const size_t shown = std::min(timings.size(), kMostBars);
  for (size_t i = 0; i < shown; ++i)
    longest = std::max(longest, total_of(timings[i]));
  const Scale scale({.from = 0, .to = longest}, {.from = 0, .to = kFigureWidth - kLeft - kRight}, false);
  for (size_t i = 0; i < shown; ++i, y += kStep) {
    const Timing& timing = timings[i];
    const std::string name =
        timing.policy == "none" ? "full cache" : shortened(timing.policy, 18) + " " + timing.budget;
    svg.text({kLeft - 8, y + 13}, name, "class=\"small\" text-anchor=\"end\"");
    const auto parts = parts_of(timing);
    double x = kLeft;
    for (size_t p = 0; p < parts.size(); ++p) {
      const double width = longest > 0 ? scale(parts[p]) : 0;
      svg.rect({.x = x, .y = y, .width = width, .height = kBar}, "class=\"t" + std::to_string(p) + "\"");
      x += width;
    }
    svg.text({x + 8, y + 13}, seconds(parts[0]) + " + " + seconds(parts[1]) + " + " + seconds(parts[2]),
             "class=\"small\"");
  }
  std::string caption = "Means of a cell of " + run.name +
                        ": prompt + answer + policy. The prompt is read once and shared "
                        "where the run shares prefixes.";
  if (shown < timings.size())
    caption += " The first " + std::to_string(shown) + " of " + std::to_string(timings.size()) + " bars.";
  return {.name = "time-" + slug(run.name),
          .choice = run.name,
          .svg = svg.finish(y + 4, "Time by policy and budget, " + run.name),
          .caption = caption};
}

}  // namespace

Section times_section(const Comparison& comparison) {
  Section section{.id = "time", .kicker = "Time"};
  FigureSet set{.title = "", .label = "Run"};
  double most_share = 0;
  std::string most;
  std::vector<std::string> without;
  for (const Run& run : comparison.runs()) {
    if (!run.timings || run.timings->empty()) {
      without.push_back(run.name);
      continue;
    }
    std::vector<Timing> timings = *run.timings;
    const auto rank = [&](const Timing& timing) {  // the full cache, then by policy, then by falling budget
      const auto& policies = run.config.policies;
      const auto& budgets = comparison.budgets();
      const auto policy = std::find_if(policies.begin(), policies.end(),
                                       [&](const PolicyEntry& entry) { return entry.name == timing.policy; });
      const auto budget = std::find(budgets.begin(), budgets.end(), timing.budget);
      return std::tuple(timing.policy != "none", policy - policies.begin(), budget - budgets.begin());
    };
    std::stable_sort(timings.begin(), timings.end(),
                     [&](const Timing& a, const Timing& b) { return rank(a) < rank(b); });
    set.figures.push_back(figure_of(run, timings));
    for (const Timing& timing : timings) {
      const double share = total_of(timing) > 0 ? timing.policy_ms.value_or(0) / 1000 / total_of(timing) : 0;
      if (timing.policy != "none" && share >= most_share) {
        most_share = share;
        most = timing.policy + " at " + timing.budget + " (" + seconds(timing.policy_ms.value_or(0) / 1000) + ")";
      }
    }
  }
  if (set.figures.empty()) {
    section.heading = "How long it took was not recorded.";
    section.note = "The figure needs timings.json, which these runs do not have.";
    return section;
  }
  section.heading = most.empty() ? "The full cache alone was timed."
                                 : "Choosing what to evict takes at most " + percent(most_share, 1) +
                                       " of a cell's time: " + most + ".";
  section.note = "Compare the answers: fewer rows to attend over make each token cheaper.";
  if (!without.empty())
    section.note += " Without timings.json: " + listed(without) + ".";
  section.sets.push_back(std::move(set));
  return section;
}

}  // namespace kedge::report
