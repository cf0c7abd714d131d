#include "chat.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <vector>

#include "console.h"
#include "engine.h"
#include "explain.h"
#include "generate.h"
#include "prompt.h"
#include "protect.h"
#include "run_report.h"
#include "signals.h"
#include "text_input.h"

namespace kedge::cli {
namespace {

// Lines of standard input; a signal ends the wait.
class LineReader {
 public:
  enum class End { line, eof, interrupted };

  End next(std::string& line) {
    for (;;) {
      if (const size_t newline = held_.find('\n'); newline != std::string::npos) {
        line = held_.substr(0, newline);
        held_.erase(0, newline + 1);
        if (!line.empty() && line.back() == '\r')
          line.pop_back();
        return End::line;
      }
      char buffer[4096];
      const ssize_t n = ::read(STDIN_FILENO, buffer, sizeof buffer);
      if (n > 0) {
        held_.append(buffer, static_cast<size_t>(n));
      } else if (n < 0 && errno == EINTR) {
        return End::interrupted;
      } else {
        line = std::exchange(held_, {});
        return line.empty() ? End::eof : End::line;
      }
    }
  }

 private:
  std::string held_;
};

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos)
    return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

class Conversation {
 public:
  Conversation(const Model& model, Session& session, const Settings& settings)
      : model_(model), session_(session), settings_(settings) {
    if (!settings.system.empty())
      messages_.push_back({.role = "system", .content = settings.system});
  }

  // Reads one message and streams the answer. Error cancelled: nothing of the turn is in the session.
  Status turn(const std::string& text) {
    messages_.push_back({.role = "user", .content = text});
    Status status = read_turn();
    if (!status.ok()) {
      messages_.pop_back();
      return status;
    }
    Result<Answer> answer =
        generate(model_, session_, {.n_predict = settings_.predict, .append_last = true}, print_text);
    if (!answer)
      return answer.error();
    held_ += answer->text;
    messages_.push_back({.role = "assistant", .content = answer->text});
    outcome_.generated_tokens += answer->n_tokens;
    outcome_.finish_reason = answer->finish_reason;
    return print_text("\n");
  }

  RunOutcome& outcome() { return outcome_; }

 private:
  Status read_turn() {
    Result<std::string> rendered = model_.apply_chat_template(messages_, true, settings_.chat_template);
    if (!rendered)
      return rendered.error();
    const bool first = held_.empty();
    const std::string reply = first ? std::string() : messages_[messages_.size() - 2].content;
    const std::optional<std::string> fresh = new_part(*rendered, held_, reply);
    if (!fresh) {
      return Error{.code = ErrorCode::failed, .message = "this chat template rewrites earlier turns: cannot continue"};
    }
    const std::vector<Token> tokens = model_.tokenize(*fresh, first, true);
    Progress progress(settings_.progress, "prompt");
    Status status = session_.prefill(tokens, [&progress](int64_t done, int64_t total) {
      progress.update(done, total);
      return !stop_requested();
    });
    if (status.ok())
      held_ += *fresh;
    return status;
  }

  const Model& model_;
  Session& session_;
  const Settings& settings_;
  std::vector<ChatMessage> messages_;
  std::string held_;  // the text that is in the session
  RunOutcome outcome_;
};

void show_prompt() {
  if (!stdin_is_terminal())
    return;
  std::fputs(use_colour() ? "\x1b[32m> \x1b[0m" : "> ", stderr);
  std::fflush(stderr);
}

// One message after another until /quit, the end of input or a signal.
Result<int> loop(Conversation& conversation, const Session& session, const Settings& settings) {
  LineReader lines;
  std::string text = settings.prompt.value_or("");
  if (settings.file) {
    Result<std::string> file = read_text(*settings.file);
    if (!file)
      return file.error();
    text = *file + text;
  }
  for (;;) {
    while (trimmed(text).empty()) {
      show_prompt();
      const LineReader::End end = lines.next(text);
      if (end == LineReader::End::eof)
        return 0;
      if (end == LineReader::End::interrupted) {
        text.clear();
        if (terminated())
          return 143;
        std::fputs("\n(Ctrl-C again or /quit leaves)\n", stderr);  // the handler counts: the second one exits
      }
    }
    forget_interrupt();
    if (trimmed(text) == "/quit")
      return 0;
    const int64_t before = session.n_tokens();
    const Status status = conversation.turn(text);
    text.clear();
    if (terminated())
      return 143;
    if (!status.ok()) {
      const ErrorCode code = status.error().code;
      const bool refused = code == ErrorCode::cancelled || code == ErrorCode::budget_impossible;
      if (!refused || session.n_tokens() != before)
        return status.error();
      note("the message was not read" + (code == ErrorCode::cancelled ? "" : ": " + status.error().message));
    }
    note(kv_line(session.stats()));
  }
}

}  // namespace

std::optional<std::string> new_part(const std::string& rendered, const std::string& held, const std::string& reply) {
  if (rendered.starts_with(held))
    return rendered.substr(held.size());
  const std::string kept = trimmed(reply);
  const size_t common = held.size() - reply.size();  // everything before the answer must be the same
  if (rendered.compare(0, common, held, 0, common) != 0)
    return std::nullopt;
  const size_t found = rendered.find(kept, common);
  if (found == std::string::npos || trimmed(rendered.substr(common, found - common)) != "")
    return std::nullopt;
  return rendered.substr(found + kept.size());
}

Result<int> chat(const Settings& settings, SessionOptions options) {
  Result<std::unique_ptr<Model>> model = load_model(settings, settings.model);
  if (!model)
    return model.error();
  if (Status status = check_explain_at(settings, (*model)->info()); !status)
    return status.error();
  // A conversation has no length of its own: a share of "the request" is a share of the context, and the end is open.
  options.expected_prompt = settings.ctx_size > 0 ? settings.ctx_size : (*model)->info().n_ctx_train;
  options.expected_generated = -1;
  if (settings.kv_pin_system) {
    Result<TokenSpan> span = system_span(**model, settings);
    if (!span)
      return span.error();
    options.protect.spans.push_back(*span);
  }
  const uint32_t seed = resolve_seed(settings);
  options.seed = seed;
  Result<std::unique_ptr<Session>> session = Session::create(**model, options);
  if (!session)
    return session.error();
  (*session)->set_sampler(sampler_options(settings, seed));
  Result<std::string> start = describe(**model, options, (*session)->stats().policy);
  if (!start)
    return start.error();
  note(*start);

  Conversation conversation(**model, **session, settings);
  conversation.outcome().seed = seed;
  Result<int> code = loop(conversation, **session, settings);
  if (!code)
    return code;
  note(end_line((*session)->stats(), conversation.outcome()));
  if (Status status = write_explanation(settings, **model, **session); !status)
    return status.error();
  if (Status status = write_reports(settings, **session, conversation.outcome()); !status)
    return status.error();
  return code;
}

}  // namespace kedge::cli
