// Perplexity of a whole text: windows one after the other from its first token, each read as context and then scored
// over its continuation, which the next window begins to read as context. Every token but those of the first context
// and of an incomplete last window is scored once.
//
//   |--- context ---|= scored =|
//              |--- context ---|= scored =|
//                         |--- context ---|= scored =|
#include "eval/window_task.h"

namespace kedge::eval {
namespace {

Result<std::unique_ptr<Task>> make(const TaskRequest& request) {
  Result<std::unique_ptr<TextTokens>> text = TextTokens::open(request.file, request.tokenizer);
  if (!text)
    return text.error();
  const int64_t n_tokens = (*text)->n_tokens();
  std::vector<Window> windows;
  for (const int64_t length : request.lengths) {
    const int64_t whole = length + request.continuation;
    if (n_tokens < whole) {
      return Error{.code = ErrorCode::usage,
                   .message = request.file + ": the text has " + std::to_string(n_tokens) + " tokens, a window needs " +
                              std::to_string(whole)};
    }
    for (int64_t offset = 0, i = 0; offset + whole <= n_tokens; offset += request.continuation, ++i)
      windows.push_back({offset, length, i});
  }
  return window_task(
      {.name = "ppl", .text = *std::move(text), .windows = std::move(windows), .continuation = request.continuation});
}

}  // namespace

TaskInfo ppl_task() {
  return {.name = "ppl",
          .summary = "perplexity of a whole text, in windows of --lengths context and --continue scored tokens",
          .source =
              "exp of the mean negative log-likelihood; windows as in llama.cpp's llama-perplexity, with the "
              "share that is scored given by --continue",
          .input = "text",
          .options = {},
          .make = make};
}

}  // namespace kedge::eval
