// kedge run: completes a text and prints what is generated.
#include <utility>

#include "chat.h"
#include "console.h"
#include "engine.h"
#include "explain.h"
#include "generate.h"
#include "prompt.h"
#include "protect.h"
#include "run_report.h"
#include "signals.h"
#include "verbs.h"

namespace kedge::cli {
namespace {

// Reads the prompt and answers it. The reports are written by the caller, whatever the finish reason. `start` is
// printed when the session has taken the prompt: a prompt it refuses gets the error line alone.
Result<RunOutcome> complete(const Model& model, Session& session, const Settings& settings,
                            const std::vector<Token>& tokens, std::string start) {
  RunOutcome outcome;
  const auto print_start = [&start] {
    if (const std::string line = std::exchange(start, {}); !line.empty())
      note(line);
  };
  Progress progress(settings.progress, "prompt");
  const Status read = session.prefill(tokens, [&](int64_t done, int64_t total) {
    print_start();
    progress.update(done, total);
    return !stop_requested();
  });
  if (read.ok() || read.error().code == ErrorCode::cancelled)
    print_start();
  if (!read.ok()) {
    if (read.error().code != ErrorCode::cancelled)
      return read.error();
    outcome.finish_reason = "interrupted";
    return outcome;
  }
  Result<Answer> answer = generate(model, session, {.n_predict = settings.predict}, print_text);
  if (!answer)
    return answer.error();
  outcome.generated_tokens = answer->n_tokens;
  outcome.finish_reason = answer->finish_reason;
  if (stdout_is_terminal()) {
    if (Status status = print_text("\n"); !status)
      return status.error();
  }
  return outcome;
}

Result<int> run(const Settings& settings) {
  Result<SessionOptions> options = session_options(settings);
  if (!options)
    return options.error();
  if (Status status = check_reports(settings); !status)
    return status.error();
  if (settings.model.empty())
    return load_model(settings, settings.model).error();
  if (settings.interactive)
    return chat(settings, *options);

  Result<std::string> text = read_prompt(settings);
  if (!text)
    return text.error();
  Result<std::unique_ptr<Model>> model = load_model(settings, settings.model);
  if (!model)
    return model.error();
  if (Status status = check_explain_at(settings, (*model)->info()); !status)
    return status.error();
  Result<std::vector<Token>> tokens = prompt_tokens(**model, settings, *text);
  if (!tokens)
    return tokens.error();
  if (Status status = check_context(settings, static_cast<int64_t>(tokens->size())); !status)
    return status.error();

  if (settings.kv_pin_system) {
    Result<TokenSpan> span = system_span(**model, settings);
    if (!span)
      return span.error();
    options->protect.spans.push_back(*span);
  }
  const uint32_t seed = resolve_seed(settings);
  options->seed = seed;
  options->expected_prompt = static_cast<int64_t>(tokens->size());
  options->expected_generated = settings.predict;  // -1: open-ended
  Result<std::unique_ptr<Session>> session = Session::create(**model, *options);
  if (!session)
    return session.error();
  (*session)->set_sampler(sampler_options(settings, seed));
  Result<std::string> start = describe(**model, *options, (*session)->stats().policy);
  if (!start)
    return start.error();
  const ModelInfo& info = (*model)->info();
  detail("seed " + std::to_string(seed) + ", " + std::to_string(info.n_threads) + " threads, " + info.kernels +
         " kernels, " + info.prompt_weights + " prompt weights");

  Result<RunOutcome> outcome = complete(**model, **session, settings, *tokens, *start);
  if (!outcome)
    return outcome.error();
  outcome->seed = seed;
  note(end_line((*session)->stats(), *outcome));
  if (Status status = write_explanation(settings, **model, **session); !status)
    return status.error();
  if (Status status = write_reports(settings, **session, *outcome); !status)
    return status.error();
  return signal_exit_code();
}

}  // namespace

int run_verb(const Settings& settings) {
  if (!settings.positional.empty()) {
    return report({.code = ErrorCode::usage,
                   .message = "unexpected argument '" + settings.positional.front() + "' (a prompt is given with -p)"});
  }
  const Result<int> code = run(settings);
  return code.ok() ? code.value() : report(code.error());
}

}  // namespace kedge::cli
