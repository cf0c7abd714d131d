// Samples that are windows of a text: context, then a continuation that is scored teacher-forced.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "eval/task.h"
#include "eval/text_tokens.h"

namespace kedge::eval {

struct Window {
  int64_t offset = 0;  // token of the text
  int64_t length = 0;  // of the context
  int64_t index = 0;   // among the windows of its length
};

// Ids are NAME-LENGTH-OFFSET. All windows, each with its continuation, lie inside the text.
struct WindowTaskParts {
  std::string name;
  std::unique_ptr<TextTokens> text;
  std::vector<Window> windows;
  int64_t continuation = 0;
};
std::unique_ptr<Task> window_task(WindowTaskParts parts);

}  // namespace kedge::eval
