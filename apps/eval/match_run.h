// --match-quality on the samples of a run: tries budgets until the smallest that passes is known (match_quality.h).
#pragma once

#include <string>
#include <vector>

#include "eval/match_quality.h"
#include "eval/runner.h"

namespace kedge::eval {

// For every task and policy. `cells` gets the full cache and every budget tried, in the order they were first tried.
// The outcome goes to the folder as `match`. Errors of run_cells; usage: the full cache scores 0.
Status run_match(RunState& state, const MatchTarget& target, std::vector<Cell>& cells);

// A line for each task and policy; empty for null.
std::string match_text(const Json& match);

}  // namespace kedge::eval
