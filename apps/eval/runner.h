// Works through a grid: sample by sample, all cells of one sample before the next, each finished cell at once in the
// journal.
#pragma once

#include <functional>
#include <list>
#include <set>
#include <string>
#include <vector>

#include "eval/cells.h"
#include "eval/config.h"
#include "eval/run_folder.h"
#include "eval/run_grid.h"

namespace kedge::eval {

// Samples whose prompts have been read, the newest first, up to a number of bytes.
class SampleCache {
 public:
  explicit SampleCache(int64_t bytes) : limit_bytes_(bytes) {}
  // Valid until the next call.
  Result<SampleRun*> get(const Engine& engine, const Config& config, const TaskGrid& task, int64_t index);

 private:
  struct Entry {
    std::string key;
    std::unique_ptr<SampleRun> run;
  };
  int64_t limit_bytes_;
  std::list<Entry> entries_;
};

struct RunState {
  const Engine& engine;
  const Config& config;
  const std::vector<TaskGrid>& tasks;
  RunFolder& folder;
  SampleCache& cache;
  std::set<std::string> traced;  // task|policy|budget|length whose memory is traced already
  std::string save_logits;       // folder for .npy files of every scored cell; "" = none
  // After every cell: cells done by this call and to do in all.
  std::function<void(const CellRecord& record, int64_t done, int64_t total)> report;
};

// Runs those of `cells` that the folder does not have yet, for every sample. Errors: cancelled, failed.
Status run_cells(RunState& state, const std::vector<Cell>& cells);

// Keys of every cell of the grid, in the order of work. Error of Task::sample.
Result<std::vector<std::string>> cell_keys(const std::vector<TaskGrid>& tasks, const std::vector<Cell>& cells);

// samples.jsonl. Error of Task::sample.
Result<std::string> samples_text(const Engine& engine, const Config& config, const std::vector<TaskGrid>& tasks);

}  // namespace kedge::eval
