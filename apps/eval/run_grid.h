// The grid of a run: tasks' samples and the cells of each, in the order of work.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "eval/cells.h"
#include "eval/config.h"
#include "eval/task.h"

namespace kedge::eval {

struct TaskGrid {
  std::string name;  // as it stands in the files: the task as written on the command line
  const TaskInfo* info = nullptr;
  std::unique_ptr<Task> task;
};

// Makes the tasks' samples ready. Errors usage and failed name the file, line or field.
Result<std::vector<TaskGrid>> make_tasks(const Config& config, const Model& model);

// `none` first, where it takes part; then policy by policy, budget by budget.
std::vector<Cell> make_cells(const Config& config);

}  // namespace kedge::eval
