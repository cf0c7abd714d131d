#include "eval/window_task.h"

#include <utility>

namespace kedge::eval {
namespace {

class WindowTask final : public Task {
 public:
  explicit WindowTask(WindowTaskParts parts) : parts_(std::move(parts)) {}

  int64_t n_samples() const override { return static_cast<int64_t>(parts_.windows.size()); }

  Result<Sample> sample(int64_t index) override {
    const Window& window = parts_.windows.at(static_cast<size_t>(index));
    Result<std::vector<Token>> tokens = parts_.text->slice(window.offset, window.length + parts_.continuation);
    if (!tokens)
      return tokens.error();
    return Sample{.id = parts_.name + "-" + std::to_string(window.length) + "-" + std::to_string(window.offset),
                  .length = window.length,
                  .seed = window.index,
                  .context = {tokens->begin(), tokens->begin() + window.length},
                  .questions = {},
                  .continuation = {tokens->begin() + window.length, tokens->end()}};
  }

 private:
  WindowTaskParts parts_;
};

}  // namespace

std::unique_ptr<Task> window_task(WindowTaskParts parts) { return std::make_unique<WindowTask>(std::move(parts)); }

}  // namespace kedge::eval
