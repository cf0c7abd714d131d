#include "eval/run_grid.h"

#include <utility>

namespace kedge::eval {

Result<std::vector<TaskGrid>> make_tasks(const Config& config, const Model& model) {
  std::vector<TaskGrid> grids;
  for (const TaskChoice& choice : config.tasks) {
    if (choice.info->input != "none" && config.file.empty())
      return Error{.code = ErrorCode::usage,
                   .message = "task " + choice.info->name + " reads a " + choice.info->input + ": give -f"};
    const TaskRequest request{
        .tokenizer = {.tokenize = [&model](std::string_view text) { return model.tokenize(text, false, false); },
                      .detokenize = [&model](std::span<const Token> tokens) { return model.detokenize(tokens); }},
        .file = config.file,
        .lengths = config.lengths,
        .depths = config.depths,
        .samples = config.samples,
        .continuation = config.continuation,
        .seed = config.seed,
        .skip_bad = config.skip_bad,
        .options = choice.options};
    Result<std::unique_ptr<Task>> task = choice.info->make(request);
    if (!task)
      return task.error();
    grids.push_back({.name = choice.written, .info = choice.info, .task = *std::move(task)});
  }
  return grids;
}

std::vector<Cell> make_cells(const Config& config) {
  std::vector<Cell> cells;
  if (config.with_none)
    cells.push_back({.policy = "none", .policy_text = "none", .budget = {}});
  for (const PolicyChoice& policy : config.policies) {
    for (const Budget& budget : config.budgets)
      cells.push_back({.policy = policy.name, .policy_text = policy.text, .budget = budget});
  }
  return cells;
}

}  // namespace kedge::eval
