// What was answered where it went wrong, to be read. All of it is text.
#include <algorithm>
#include <map>

#include "fields.h"
#include "markup.h"
#include "sections.h"

namespace kedge::report {
namespace {

constexpr size_t kMostShown = 80;
constexpr size_t kMostOfOne = 8;  // of one (run, task, policy, budget): the worst policy must not fill the list
constexpr size_t kMostChars = 600;

struct Miss {
  size_t run = 0;
  const Prediction* row = nullptr;
  const Prediction* full = nullptr;  // the same question with the full cache
  double loss() const { return (full != nullptr ? full->score.value_or(0) : 1) - row->score.value_or(0); }
};

std::string question_key(const Prediction& row) {
  return row.task + "\n" + row.sample + "\n" + (row.question ? plain(*row.question) : "");
}

struct Misses {
  std::vector<Miss> list;                   // worst first
  size_t n_answers = 0;                     // of policies that evict
  std::map<std::string, size_t> by_policy;  // where the full cache is right
  size_t n_lost = 0;
};

Misses misses_of(const Comparison& comparison) {
  Misses out;
  for (size_t r = 0; r < comparison.runs().size(); ++r) {
    const Run& run = comparison.runs()[r];
    std::map<std::string, const Prediction*> full;
    for (const Prediction& row : run.predictions) {
      if (row.policy == "none" && row.score)
        full[question_key(row)] = &row;
    }
    for (const Prediction& row : run.predictions) {
      if (row.policy == "none" || (!row.score && row.error.empty()))
        continue;
      ++out.n_answers;
      if (row.score.value_or(0) >= 1)
        continue;
      const auto found = full.find(question_key(row));
      Miss miss{.run = r, .row = &row, .full = found == full.end() ? nullptr : found->second};
      if (miss.full != nullptr && *miss.full->score >= 1) {
        ++out.n_lost;
        const Series* series = comparison.series_of(r, row.policy);
        ++out.by_policy[(series != nullptr ? series->label : row.policy) + " at " + row.budget];
      }
      out.list.push_back(miss);
    }
  }
  std::stable_sort(out.list.begin(), out.list.end(), [](const Miss& a, const Miss& b) { return a.loss() > b.loss(); });
  return out;
}

// A JSON list as its words; whatever else it is as it stands.
std::string answers_text(const std::string& answers) {
  const Result<Json> json = parse_json(answers, "answers");
  if (!json || !json->is_array())
    return answers;
  std::string out;
  for (const Json& answer : *json) {
    out += out.empty() ? "" : "  |  ";
    out += answer.is_string() ? answer.get<std::string>() : answer.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  return out;
}

std::string line_html(const char* name, const std::string& text) {
  const std::string shown = text.empty() ? "<span class=\"muted\">nothing</span>" : escape(shortened(text, kMostChars));
  return std::string("<dt>") + name + "</dt><dd>" + shown + "</dd>";
}

std::string miss_html(const Miss& miss, const Comparison& comparison) {
  const Prediction& row = *miss.row;
  const Series* series = comparison.series_of(miss.run, row.policy);
  std::string head = "<b>" + escape(series != nullptr ? series->label : row.policy) + "</b> at " + escape(row.budget) +
                     ", " + escape(row.task) + ", " + escape(row.sample);
  if (row.length)
    head += ", " + length_text(row.length);
  if (row.depth)
    head += ", depth " + percent(*row.depth);
  head += row.score ? ": <span class=\"score\">" + escape(row.metric) + " " + real(*row.score, 2) + "</span>"
                    : ": <span class=\"score\">no score</span>";
  std::string out = "<li data-policy=\"" + escape(row.policy) + "\" data-budget=\"" + escape(row.budget) + "\"><p>" +
                    head + "</p><dl>" + line_html("expected", answers_text(row.answers)) +
                    line_html("answer", row.prediction);
  if (miss.full != nullptr)
    out += line_html(miss.full->score.value_or(0) >= 1 ? "full cache" : "full cache, wrong too", miss.full->prediction);
  if (!row.error.empty())
    out += line_html("error", row.error);
  return out + "</dl></li>\n";
}

std::string heading_of(const Misses& misses) {
  if (misses.list.empty())
    return misses.n_answers == 0 ? "These runs have no answers to read." : "Every answer under every policy is right.";
  const auto most = std::max_element(misses.by_policy.begin(), misses.by_policy.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  std::string out = std::to_string(misses.n_lost) + " of " + std::to_string(misses.n_answers) +
                    " answers are wrong where the full cache is right";
  return most == misses.by_policy.end() ? out + "." : out + ", most with " + most->first + ".";
}

}  // namespace

Section predictions_section(const Comparison& comparison) {
  const Misses misses = misses_of(comparison);
  Section section{.id = "predictions", .kicker = "Worst predictions", .heading = heading_of(misses)};
  std::map<std::string, size_t> shown_of;
  size_t n_shown = 0;
  std::string list;
  for (const Miss& miss : misses.list) {
    const Prediction& row = *miss.row;
    if (n_shown == kMostShown)
      break;
    if (++shown_of[std::to_string(miss.run) + "\n" + row.task + "\n" + row.policy + "\n" + row.budget] > kMostOfOne)
      continue;
    list += miss_html(miss, comparison);
    ++n_shown;
  }
  if (n_shown == 0)
    return section;
  section.note = std::to_string(n_shown) + " of " + std::to_string(misses.list.size()) +
                 " imperfect answers: those that lost most against the full cache first, at most " +
                 std::to_string(kMostOfOne) + " of one policy and budget. The rest is in predictions.csv.";
  section.html = "<ol class=\"answers\">" + list + "</ol>";
  return section;
}

}  // namespace kedge::report
