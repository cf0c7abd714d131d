// The grid of a generated task: every length x depth x repetition is one sample.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "eval/task.h"

namespace kedge::eval {

struct Place {
  std::string id;  // "needle-1024-d25-0"; without depths "vt-1024-0"
  int64_t length = 0;
  double depth = -1;
  int64_t seed = 0;
};

class Grid {
 public:
  // Repetitions change fastest, then depths. with_depths false: depth is -1 throughout.
  Grid(std::string task, const TaskRequest& request, bool with_depths);

  int64_t size() const;
  Place at(int64_t index) const;
  // An empty sample of that place.
  static Sample sample(const Place& place);

 private:
  std::string task_;
  std::vector<int64_t> lengths_;
  std::vector<double> depths_;
  int64_t samples_;
};

// Options as numbers and flags; the table has checked them.
int64_t number(const TaskRequest& request, const std::string& option);
const std::string& word(const TaskRequest& request, const std::string& option);

Error usage(std::string message);

// length minus the tokens of the longest question: what is left for the context.
int64_t room(const Tokenizer& tokenizer, int64_t length, std::span<const Question> questions);

// The user's text, whole. Errors: usage (no -f, nothing in it), failed (unreadable).
Result<std::string> read_task_text(const TaskRequest& request, const std::string& task);

}  // namespace kedge::eval
