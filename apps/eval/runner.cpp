#include "eval/runner.h"

#include <utility>

#include "base/clock.h"
#include "cli/signals.h"
#include "eval/npy.h"

namespace kedge::eval {
namespace {

std::string trace_key(const Row& row) {
  return row.task + "|" + row.policy + "|" + row.budget + "|" + std::to_string(row.length);
}

// Full rows once a sample, and the rows of the cell: f32 [n, n_vocab].
Status save_logits(RunState& state, SampleRun& run, const Cell& cell, const std::string& task) {
  const std::string name = state.save_logits + "/" + file_name(cell.key(task, run.sample()));
  Row row;
  CellRecord record;
  Result<LogitRows> rows = run.rows_of(cell, row, record, false);
  if (!rows)
    return rows.error();
  Result<const LogitRows*> full = run.full_rows();
  if (!full)
    return full.error();
  if (Status status = write_npy(name + ".npy", rows->values, rows->n_rows(), rows->n_vocab); !status)
    return status;
  const std::string reference = state.save_logits + "/" + file_name(task + "|" + run.sample().id + "|full") + ".npy";
  return write_npy(reference, (*full)->values, (*full)->n_rows(), (*full)->n_vocab);
}

Status run_cell(RunState& state, SampleRun& run, const Cell& cell, const std::string& task) {
  const std::string group =
      task + "|" + cell.policy + "|" + cell.budget_text() + "|" + std::to_string(run.sample().length);
  const Stopwatch watch;
  Result<CellRecord> record = run.run(cell, !state.traced.contains(group));
  if (!record)
    return record.error();
  record->seconds = watch.seconds();
  if (!record->memory.empty())
    state.traced.insert(group);
  if (!state.save_logits.empty() && !run.prompt().continuation.empty() && record->rows.front().error.empty()) {
    if (Status status = save_logits(state, run, cell, task); !status)
      return status;
  }
  return state.folder.add(*std::move(record));
}

}  // namespace

Result<SampleRun*> SampleCache::get(const Engine& engine, const Config& config, const TaskGrid& task, int64_t index) {
  const std::string key = task.name + "|" + std::to_string(index);
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if (entry->key == key) {
      entries_.splice(entries_.begin(), entries_, entry);
      return entries_.front().run.get();
    }
  }
  Result<Sample> sample = task.task->sample(index);
  if (!sample)
    return sample.error();
  Result<Prompt> prompt = make_prompt(engine.model, config, *sample);
  if (!prompt)
    return prompt.error();
  int64_t held = 0;
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    held += entry->run->held_bytes();
    entry = held > limit_bytes_ ? entries_.erase(entry) : std::next(entry);
  }
  entries_.push_front(
      {key, std::make_unique<SampleRun>(engine, config, task.name, *std::move(sample), *std::move(prompt))});
  return entries_.front().run.get();
}

Status run_cells(RunState& state, const std::vector<Cell>& cells) {
  for (const CellRecord& record : state.folder.records()) {
    if (!record.memory.empty() && !record.rows.empty())
      state.traced.insert(trace_key(record.rows.front()));
  }
  struct Work {
    const TaskGrid* task;
    int64_t sample;
    std::vector<const Cell*> cells;
  };
  std::vector<Work> work;
  int64_t total = 0;
  for (const TaskGrid& task : state.tasks) {
    for (int64_t i = 0; i < task.task->n_samples(); ++i) {
      Result<Sample> sample = task.task->sample(i);
      if (!sample)
        return sample.error();
      Work item{.task = &task, .sample = i};
      for (const Cell& cell : cells) {
        if (state.folder.find(cell.key(task.name, *sample)) == nullptr)
          item.cells.push_back(&cell);
      }
      total += static_cast<int64_t>(item.cells.size());
      if (!item.cells.empty())
        work.push_back(std::move(item));
    }
  }
  int64_t done = 0;
  for (const Work& item : work) {
    Result<SampleRun*> run = state.cache.get(state.engine, state.config, *item.task, item.sample);
    if (!run)
      return run.error();
    for (const Cell* cell : item.cells) {
      if (cli::stop_requested())
        return Error{.code = ErrorCode::cancelled, .message = "interrupted; the same command goes on"};
      if (Status status = run_cell(state, **run, *cell, item.task->name); !status)
        return status;
      ++done;
      if (state.report)
        state.report(state.folder.records().back(), done, total);
    }
  }
  return {};
}

Result<std::vector<std::string>> cell_keys(const std::vector<TaskGrid>& tasks, const std::vector<Cell>& cells) {
  std::vector<std::string> keys;
  for (const TaskGrid& task : tasks) {
    for (int64_t i = 0; i < task.task->n_samples(); ++i) {
      Result<Sample> sample = task.task->sample(i);
      if (!sample)
        return sample.error();
      for (const Cell& cell : cells)
        keys.push_back(cell.key(task.name, *sample));
    }
  }
  return keys;
}

Result<std::string> samples_text(const Engine& engine, const Config& config, const std::vector<TaskGrid>& tasks) {
  std::string text;
  for (const TaskGrid& task : tasks) {
    for (int64_t i = 0; i < task.task->n_samples(); ++i) {
      Result<Sample> sample = task.task->sample(i);
      if (!sample)
        return sample.error();
      Result<Prompt> prompt = make_prompt(engine.model, config, *sample);
      if (!prompt)
        return prompt.error();
      Json questions = Json::array();
      for (size_t q = 0; q < sample->questions.size(); ++q) {
        const Question& question = sample->questions[q];
        questions.push_back({{"tokens", prompt->questions[q]},
                             {"text", question.text},
                             {"answers", question.answers},
                             {"metric", question.metric},
                             {"max_tokens", question.max_tokens},
                             {"stop_at_newline", question.stop_at_newline}});
      }
      const Json line = {{"task", task.name},
                         {"sample", sample->id},
                         {"length", sample->length},
                         {"depth", sample->depth >= 0 ? Json(sample->depth) : Json()},
                         {"seed", sample->seed},
                         {"context", prompt->context},
                         {"continuation", prompt->continuation},
                         {"questions", std::move(questions)}};
      text += to_line(line) + "\n";
    }
  }
  return text;
}

}  // namespace kedge::eval
