// Windows of a text at seeded places: how far a policy's predictions of what follows are from the full cache's, as KL
// divergence in nats a token. The question of a reader is unknown: the eviction sees the prompt only.
#include "cli/windows.h"
#include "eval/window_task.h"

namespace kedge::eval {
namespace {

Result<std::unique_ptr<Task>> make(const TaskRequest& request) {
  Result<std::unique_ptr<TextTokens>> text = TextTokens::open(request.file, request.tokenizer);
  if (!text)
    return text.error();
  std::vector<Window> windows;
  for (const int64_t length : request.lengths) {
    Result<std::vector<int64_t>> offsets = cli::sample_offsets({.n_tokens = (*text)->n_tokens(),
                                                                .length = length + request.continuation,
                                                                .samples = static_cast<int>(request.samples),
                                                                .seed = request.seed});
    if (!offsets)
      return Error{.code = offsets.error().code, .message = request.file + ": " + offsets.error().message};
    for (size_t i = 0; i < offsets->size(); ++i)
      windows.push_back({(*offsets)[i], length, static_cast<int64_t>(i)});
  }
  return window_task(
      {.name = "kld", .text = *std::move(text), .windows = std::move(windows), .continuation = request.continuation});
}

}  // namespace

TaskInfo kld_task() {
  return {.name = "kld",
          .summary =
              "KL divergence to the full cache over what follows seeded windows of a text (--samples a length, "
              "--continue tokens each)",
          .source = "Kullback and Leibler 1951; windows as in `kedge perplexity`",
          .input = "text",
          .options = {},
          .make = make};
}

}  // namespace kedge::eval
