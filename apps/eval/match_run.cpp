#include "eval/match_run.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

namespace kedge::eval {
namespace {

std::string share_text(double share) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.10g%%", std::round(share * 1000) / 10);
  return buffer;
}

// One value a sample: the mean score of its questions, or its KLD. Nothing where a sample has none.
std::optional<std::vector<double>> values_of(const RunState& state, const TaskGrid& task, const Cell& cell,
                                             bool divergence) {
  std::vector<double> values;
  for (int64_t i = 0; i < task.task->n_samples(); ++i) {
    Result<Sample> sample = task.task->sample(i);
    if (!sample)
      return std::nullopt;
    const CellRecord* record = state.folder.find(cell.key(task.name, *sample));
    if (record == nullptr)
      return std::nullopt;
    double sum = 0;
    for (const Row& row : record->rows) {
      const Value value = divergence ? row.kld_mean : row.score;
      if (!value)
        return std::nullopt;
      sum += *value;
    }
    values.push_back(sum / static_cast<double>(record->rows.size()));
  }
  return values;
}

Error no_values(const TaskGrid& task, const Cell& cell, bool divergence) {
  return {.code = ErrorCode::usage,
          .message = "task " + task.name + " under " + cell.policy + " " + cell.budget_text() +
                     " has samples without a " +
                     (divergence ? "KLD: --match-kld needs kld or ppl" : "score: --match-quality needs questions")};
}

Result<Json> match_policy(RunState& state, const TaskGrid& task, const PolicyChoice& policy, const MatchTarget& target,
                          std::vector<Cell>& cells) {
  const bool divergence = target.kld > 0;
  const std::optional<std::vector<double>> full = values_of(state, task, cells.front(), divergence);
  if (!full)
    return no_values(task, cells.front(), divergence);
  if (!divergence && std::ranges::all_of(*full, [](double score) { return score <= 0; })) {
    return Error{.code = ErrorCode::usage,
                 .message = "the full cache scores 0 on " + task.name + ": there is no quality to keep"};
  }
  std::vector<Tried> tried;
  for (double share = next_share(tried, *full, target); share > 0; share = next_share(tried, *full, target)) {
    Result<Budget> budget = parse_budget(share_text(share));
    if (!budget)
      return budget.error();
    const Cell cell{.policy = policy.name, .policy_text = policy.text, .budget = *budget};
    if (Status status = run_cells(state, {cell}); !status)
      return status.error();
    const auto same = [&cell](const Cell& other) {
      return other.policy == cell.policy && other.budget_text() == cell.budget_text();
    };
    if (std::ranges::none_of(cells, same))
      cells.push_back(cell);
    std::optional<std::vector<double>> values = values_of(state, task, cell, divergence);
    if (!values)
      return no_values(task, cell, divergence);
    tried.push_back({.share = share, .quality = *std::move(values)});
  }
  const Match match = summarize(tried, *full, target, state.config.seed);
  return Json{{"task", task.name},
              {"policy", policy.name},
              {"target", divergence ? target.kld : target.quality},
              {"measure", divergence ? "kld_mean" : "share of the full score"},
              {"budget", share_text(match.share)},
              {"budget_lo", share_text(match.share_lo)},
              {"budget_hi", share_text(match.share_hi)},
              {"quality", match.quality},
              {"quality_lo", match.quality_lo},
              {"quality_hi", match.quality_hi},
              {"n", full->size()}};
}

}  // namespace

Status run_match(RunState& state, const MatchTarget& target, std::vector<Cell>& cells) {
  cells = {{.policy = "none", .policy_text = "none", .budget = {}}};
  if (Status status = run_cells(state, cells); !status)
    return status;
  Json match = Json::array();
  for (const TaskGrid& task : state.tasks) {
    for (const PolicyChoice& policy : state.config.policies) {
      Result<Json> found = match_policy(state, task, policy, target, cells);
      if (!found)
        return found.error();
      match.push_back(*std::move(found));
    }
  }
  return state.folder.match() == match ? Status() : state.folder.add_match(match);
}

std::string match_text(const Json& match) {
  std::string out;
  if (match.is_null())
    return out;
  for (const Json& one : match) {
    char buffer[320];
    std::snprintf(buffer, sizeof buffer,
                  "%s %s: %s is the smallest budget that passes (95 %% interval %s to %s); there: %s %.4g (%.4g to "
                  "%.4g), target %.4g, %d samples\n",
                  one.at("task").get<std::string>().c_str(), one.at("policy").get<std::string>().c_str(),
                  one.at("budget").get<std::string>().c_str(), one.at("budget_lo").get<std::string>().c_str(),
                  one.at("budget_hi").get<std::string>().c_str(), one.at("measure").get<std::string>().c_str(),
                  one.at("quality").get<double>(), one.at("quality_lo").get<double>(),
                  one.at("quality_hi").get<double>(), one.at("target").get<double>(), one.at("n").get<int>());
    out += buffer;
  }
  return out;
}

}  // namespace kedge::eval
