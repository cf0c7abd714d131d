// kedge run: completes a text and prints what is generated.
#include <utility>

#include "chat.h"
#include "console.h"
#include "engine.h"
#include "explain.h"
#include "generate.h"
#include "prompt.h"
#include "questions.h"
#include "run_report.h"
#include "run_session.h"
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
  Status read;
  if (!tokens.empty()) {
    read = session.prefill(tokens, [&](int64_t done, int64_t total) {
      print_start();
      progress.update(done, total);
      return !stop_requested();
    });
  }
  if (read.ok() || read.error().code == ErrorCode::cancelled)
    print_start();
  if (!read.ok()) {
    if (read.error().code != ErrorCode::cancelled)
      return read.error();
    outcome.finish_reason = "interrupted";
    return outcome;
  }
  outcome.read_whole_prompt = true;
  // What is saved holds all that was printed.
  const bool saves = !settings.session.empty() && !settings.session_ro;
  Result<Answer> answer = generate(model, session, {.n_predict = settings.predict, .append_last = saves}, print_text);
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

// The text to read; with a session to go on from there need be none.
Result<std::string> read_text_of(const Settings& settings) {
  const Result<bool> exists = session_exists(settings);
  if (!exists)
    return exists.error();
  if (*exists && !settings.file && !settings.prompt && stdin_is_terminal())
    return std::string();
  return read_prompt(settings);
}

Result<std::vector<Token>> tokens_of(const Model& model, const Settings& settings, const std::string& text) {
  const Result<bool> exists = session_exists(settings);
  if (!exists)
    return exists.error();
  Result<std::vector<Token>> tokens =
      *exists ? session_prompt(model, settings, text) : prompt_tokens(model, settings, text);
  if (!tokens)
    return tokens;
  if (Status status = check_context(settings, static_cast<int64_t>(tokens->size())); !status)
    return status.error();
  return tokens;
}

Result<int> complete_text(const Settings& settings, const Model& model, SessionOptions options,
                          const std::string& text) {
  const Result<std::vector<Token>> tokens = tokens_of(model, settings, text);
  if (!tokens)
    return tokens.error();
  const uint32_t seed = resolve_seed(settings);
  options.seed = seed;
  options.expected_prompt = static_cast<int64_t>(tokens->size());
  options.expected_generated = settings.predict;  // -1: open-ended
  options.branch_tokens = settings.kv_branch.value_or(0);
  if (Status status = pin_system(model, settings, options); !status)
    return status.error();
  Result<Opened> opened = open_session(model, settings, options, *tokens);
  if (!opened)
    return opened.error();
  Session& session = *opened->session;
  choose_sampler(session, settings, seed, opened->restored);
  Result<std::string> start = describe(model, session.options());
  if (!start)
    return start.error();
  const ModelInfo& info = model.info();
  detail(std::to_string(info.n_threads) + " threads, " + info.kernels + " kernels, " + info.prompt_weights +
         " prompt weights, mmap " + info.mmap);

  const Stats before = session.stats();
  Result<RunOutcome> outcome = complete(model, session, settings, opened->unread, *start);
  if (!outcome)
    return outcome.error();
  outcome->preset = settings.preset;
  outcome->sampler = session.sampler();
  outcome->session_tokens = opened->reused_tokens;
  const Stats done = since(session.stats(), before);
  note(end_line(done, *outcome));
  if (Status status = write_explanation(settings, model, session); !status)
    return status.error();
  if (Status status = write_reports(settings, session, done, *outcome); !status)
    return status.error();
  if (outcome->read_whole_prompt) {
    if (Status status = save_session(settings, session); !status)
      return status.error();
  }
  return signal_exit_code();
}

Result<int> run(const Settings& settings) {
  Result<SessionOptions> options = session_options(settings);
  if (!options)
    return options.error();
  if (Status status = check_reports(settings); !status)
    return status.error();
  if (Status status = check_session_writable(settings); !status)
    return status.error();
  if (settings.model.empty())
    return load_model(settings, settings.model).error();
  if (settings.interactive)
    return chat(settings, *options);
  if (asks_questions(settings))
    return ask_questions(settings, *options);
  const Result<std::string> text = read_text_of(settings);
  if (!text)
    return text.error();
  Result<std::unique_ptr<Model>> model = load_model(settings, settings.model);
  if (!model)
    return model.error();
  if (Status status = check_explain_at(settings, (*model)->info()); !status)
    return status.error();
  return complete_text(settings, **model, *options, *text);
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
