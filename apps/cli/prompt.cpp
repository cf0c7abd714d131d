#include "prompt.h"

#include <unistd.h>

#include <random>

#include "base/output_file.h"
#include "console.h"
#include "engine.h"
#include "text_input.h"

namespace kedge::cli {

Result<std::string> read_prompt(const Settings& settings) {
  if (!settings.file && !settings.prompt) {
    if (!stdin_is_terminal())
      return read_text("-");
    return Error{.code = ErrorCode::usage, .message = "no prompt: give -p TEXT, -f FILE or pipe a text"};
  }
  std::string text;
  if (settings.file) {
    Result<std::string> file = read_text(*settings.file);
    if (!file)
      return file;
    text = *std::move(file);
  }
  return text + settings.prompt.value_or("");
}

Result<std::vector<Token>> prompt_tokens(const Model& model, const Settings& settings, const std::string& text) {
  std::string rendered = text;
  if (settings.chat) {
    std::vector<ChatMessage> messages;
    if (!settings.system.empty())
      messages.push_back({.role = "system", .content = settings.system});
    messages.push_back({.role = "user", .content = text});
    Result<std::string> result = model.apply_chat_template(messages, true, settings.chat_template);
    if (!result)
      return result.error();
    rendered = *std::move(result);
  }
  std::vector<Token> tokens = model.tokenize(rendered, !settings.append, true);
  if (!tokens.empty())
    return tokens;
  if (model.bos() < 0) {
    return Error{.code = ErrorCode::usage,
                 .message = "the prompt is empty, and this model has no beginning-of-text token to start from"};
  }
  warn("the prompt is empty: starting from the model's beginning-of-text token");
  return std::vector<Token>{model.bos()};
}

Status check_context(const Settings& settings, int64_t n_tokens) {
  if (settings.ctx_size <= 0 || n_tokens <= settings.ctx_size || settings.kv_overflow == "truncate")
    return {};
  return Error{.code = ErrorCode::context_too_long,
               .message = "the prompt has " + std::to_string(n_tokens) + " tokens, more than --ctx-size " +
                          std::to_string(settings.ctx_size) + " allows"};
}

uint32_t resolve_seed(const Settings& settings) {
  if (settings.seed && *settings.seed >= 0)
    return static_cast<uint32_t>(*settings.seed);
  // 0xFFFFFFFF means "random" at the door; the report must name the seed that was used.
  return static_cast<uint32_t>(std::random_device()()) & 0x7FFFFFFFU;
}

SamplerOptions sampler_options(const Settings& settings, uint32_t seed) {
  return {.temperature = settings.temperature,
          .top_k = settings.top_k,
          .top_p = settings.top_p,
          .min_p = settings.min_p,
          .repeat_penalty = settings.repeat_penalty,
          .repeat_last_n = settings.repeat_last_n,
          .length_penalty = settings.length_penalty,
          .seed = seed};
}

std::string sampling_text(const SamplerOptions& options) {
  std::string text = "temp " + format_real(static_cast<double>(options.temperature), 2);
  const auto add = [&text](const char* name, double value, int digits) {
    text += std::string(", ") + name + " " + format_real(value, digits);
  };
  add("top-k", options.top_k, 0);
  add("top-p", static_cast<double>(options.top_p), 2);
  add("min-p", static_cast<double>(options.min_p), 2);
  add("repeat-penalty", static_cast<double>(options.repeat_penalty), 2);
  add("repeat-last-n", options.repeat_last_n, 0);
  add("length-penalty", static_cast<double>(options.length_penalty), 2);
  return text + ", seed " + std::to_string(options.seed);
}

Status print_text(std::string_view text) { return write_all(STDOUT_FILENO, text, "standard output"); }

}  // namespace kedge::cli
