// What is asked of a model: samples, each a context and either questions about it or a continuation to score. A task is
// one file in tasks/, found by its listing; the grid, the policies and the measuring are the runner's (runner.h).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kedge/error.h"
#include "kedge/model.h"

namespace kedge::eval {

struct Question {
  std::string text;                  // follows the context directly; ends where the answer begins
  std::vector<std::string> answers;  // references; what several mean is the metric's business
  std::string metric = "contains";   // of metrics.h
  int max_tokens = 32;               // greedy, ends at end of generation
  bool stop_at_newline = true;       // the answer ends at the first newline after something that is no space
};

struct Sample {
  std::string id;                   // unique within a task and stable: "needle-1024-d25-0"
  int64_t length = 0;               // the length asked for, in tokens (context of a window, or of context + question)
  double depth = -1;                // where in the context the answer lies, 0..1; -1: not one place
  int64_t seed = 0;                 // which repetition of (length, depth)
  std::vector<Token> context;       // without a BOS token: the runner adds it where the model wants one
  std::vector<Question> questions;  // each is asked from the end of the context anew
  std::vector<Token> continuation;  // instead of questions: scored teacher-forced
};

// The two directions of the tokenizer, as a task needs them. No special tokens are added or parsed.
struct Tokenizer {
  std::function<std::vector<Token>(std::string_view)> tokenize;
  std::function<std::string(std::span<const Token>)> detokenize;
};

struct TaskRequest {
  Tokenizer tokenizer;
  std::string file;              // -f: the text, the folder or the file of lines; "" where none was given
  std::vector<int64_t> lengths;  // tokens
  std::vector<double> depths;    // 0..1
  int64_t samples = 1;           // repetitions of each (length, depth); windows of kld and ppl (0: the whole text)
  int64_t continuation = 128;    // kld, ppl: tokens scored after the context
  uint64_t seed = 0;
  bool skip_bad = false;                       // leave out malformed lines, counted in Task::n_skipped()
  std::map<std::string, std::string> options;  // of the task's table, every one present, checked against its range
};

class Task {
 public:
  virtual ~Task() = default;
  virtual int64_t n_samples() const = 0;
  // Samples are independent of the order they are asked for; the same request gives the same samples on any machine.
  virtual Result<Sample> sample(int64_t index) = 0;
  virtual int64_t n_skipped() const { return 0; }
};

struct TaskOption {
  std::string name;
  std::string fallback;  // as the user would write it
  int64_t min = 0;       // whole numbers; not looked at where choices are given
  int64_t max = 0;
  std::vector<std::string> choices;
  std::string help;
};

struct TaskInfo {
  std::string name;
  std::string summary;  // one line
  std::string source;   // paper or project whose task this is
  std::string input;    // what -f must be: "text", "folder", "lines", "none"
  bool uses_depth = false;
  std::vector<TaskOption> options;
  // Reads and checks the input. Errors usage and failed name the file, line or field.
  Result<std::unique_ptr<Task>> (*make)(const TaskRequest& request) = nullptr;
};

// Generated from the listing of tasks/, sorted by name. A file tasks/needle.cpp defines `TaskInfo needle_task()`.
std::span<const TaskInfo> tasks();

// "needle:keys=4,values=2": the task and its options, checked. Error usage, naming the nearest.
struct TaskChoice {
  const TaskInfo* info = nullptr;
  std::map<std::string, std::string> options;  // every option of the table
  std::string written;                         // as it was given
  std::string text;                            // resolved: "needle:keys=4,values=2,queries=1"
};
Result<TaskChoice> parse_task(std::string_view text);

}  // namespace kedge::eval
