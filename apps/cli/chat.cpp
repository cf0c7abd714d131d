#include "chat.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "chat_state.h"
#include "console.h"
#include "engine.h"
#include "explain.h"
#include "generate.h"
#include "prompt.h"
#include "questions.h"
#include "run_report.h"
#include "run_session.h"
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
  Conversation(const Model& model, std::unique_ptr<Session> session, const Settings& settings)
      : model_(model), session_(std::move(session)), settings_(settings) {
    if (!settings.system.empty())
      said_.messages.push_back({.role = "system", .content = settings.system});
  }

  // Reads one message and streams the answer. Where it fails, nothing of the turn is in the session if that can be.
  Status turn(const std::string& text) {
    Status status = try_turn(text);
    if (status.ok() || !session_->has_mark())
      return status;
    const Status back = take_back();
    return back.ok() ? status : back;
  }

  // The session as it was before the last turn. Error usage: why it cannot be.
  Status take_back() {
    if (!before_)
      return Error{.code = ErrorCode::usage, .message = "there is no turn to take back"};
    if (!session_->has_mark()) {
      return Error{.code = ErrorCode::usage,
                   .message =
                       "the last turn evicted rows that are needed to go back; --kv-branch N keeps room for a "
                       "turn of N tokens"};
    }
    if (Status status = session_->rewind(); !status)
      return status;
    said_ = *std::exchange(before_, std::nullopt);
    session_->drop_mark();
    return {};
  }

  Status save(const std::string& path) const { return session_->save(path, chat_to_json(said_)); }

  // Nothing changes unless all of it can be taken over.
  Status load(const std::string& path) {
    Result<std::unique_ptr<Session>> session = Session::restore(model_, path);
    if (!session)
      return session.error();
    if (Status status = check_same_options(model_, settings_, (*session)->options(), path); !status)
      return status;
    Result<ChatState> said = chat_from_json((*session)->app_data());
    if (!said)
      return Error{.code = said.error().code, .message = path + ": " + said.error().message};
    choose_sampler(**session, settings_, session_->sampler().seed, true);
    session_ = *std::move(session);
    said_ = *std::move(said);
    before_.reset();
    return {};
  }

  RunOutcome& outcome() { return outcome_; }
  const Session& session() const { return *session_; }

 private:
  Status try_turn(const std::string& text) {
    before_ = said_;
    session_->mark(session_->options().branch_tokens != 0 ? Mark::firm : Mark::yielding);
    said_.messages.push_back({.role = "user", .content = text});
    Status status = read_turn();
    if (!status.ok()) {
      said_.messages.pop_back();
      return status;
    }
    Result<Answer> answer =
        generate(model_, *session_, {.n_predict = settings_.predict, .append_last = true}, print_text);
    if (!answer)
      return answer.error();
    said_.held += answer->text;
    said_.messages.push_back({.role = "assistant", .content = answer->text});
    outcome_.generated_tokens += answer->n_tokens;
    outcome_.finish_reason = answer->finish_reason;
    return print_text("\n");
  }

  Status read_turn() {
    Result<std::string> rendered = model_.apply_chat_template(said_.messages, true, settings_.chat_template);
    if (!rendered)
      return rendered.error();
    const bool first = said_.held.empty();
    const std::string reply = first ? std::string() : said_.messages[said_.messages.size() - 2].content;
    const std::optional<std::string> fresh = new_part(*rendered, said_.held, reply);
    if (!fresh) {
      return Error{.code = ErrorCode::failed, .message = "this chat template rewrites earlier turns: cannot continue"};
    }
    const std::vector<Token> tokens = model_.tokenize(*fresh, first, true);
    Progress progress(settings_.progress, "prompt");
    Status status = session_->prefill(tokens, [&progress](int64_t done, int64_t total) {
      progress.update(done, total);
      return !stop_requested();
    });
    if (status.ok())
      said_.held += *fresh;
    return status;
  }

  const Model& model_;
  std::unique_ptr<Session> session_;
  const Settings& settings_;
  ChatState said_;
  std::optional<ChatState> before_;  // the last turn
  RunOutcome outcome_;
};

// A line that is a command and no message: /save FILE, /load FILE, /rewind. What it cannot do it says, and the chat
// goes on.
bool run_command(Conversation& conversation, const std::string& text) {
  const std::string line = trimmed(text);
  const size_t space = line.find(' ');
  const std::string name = line.substr(0, space);
  const std::string file = space == std::string::npos ? std::string() : trimmed(line.substr(space));
  if (name != "/save" && name != "/load" && name != "/rewind")
    return false;
  if (name != "/rewind" && file.empty()) {
    warn(name + " needs a file");
    return true;
  }
  const Status status = name == "/save"   ? conversation.save(file)
                        : name == "/load" ? conversation.load(file)
                                          : conversation.take_back();
  if (!status) {
    warn(status.error().message);
  } else if (name == "/rewind") {
    note("the last turn is taken back; " + kv_line(conversation.session().stats()));
  } else {
    note("'" + file + (name == "/save" ? "' saved, " : "' loaded, ") + grouped(conversation.session().n_tokens()) +
         " tokens; " + kv_line(conversation.session().stats()));
  }
  return true;
}

void show_prompt() {
  if (!stdin_is_terminal())
    return;
  std::fputs(use_colour() ? "\x1b[32m> \x1b[0m" : "> ", stderr);
  std::fflush(stderr);
}

// One message after another until /quit, the end of input or a signal.
Result<int> loop(Conversation& conversation, const Settings& settings) {
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
    if (run_command(conversation, text)) {
      text.clear();
      continue;
    }
    const int64_t before = conversation.session().n_tokens();
    const Status status = conversation.turn(text);
    text.clear();
    if (terminated())
      return 143;
    if (!status.ok()) {
      const ErrorCode code = status.error().code;
      const bool refused = code == ErrorCode::cancelled || code == ErrorCode::budget_impossible;
      if (!refused || conversation.session().n_tokens() != before)
        return status.error();
      note("the message was not read" + (code == ErrorCode::cancelled ? "" : ": " + status.error().message));
    }
    note(kv_line(conversation.session().stats()));
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
  if (asks_questions(settings) || settings.append) {
    return Error{
        .code = ErrorCode::usage,
        .message = std::string(settings.append ? "--append" : "--question") + " does not go with --interactive"};
  }
  const Result<bool> exists = session_exists(settings);
  if (!exists)
    return exists.error();
  Result<std::unique_ptr<Model>> model = load_model(settings, settings.model);
  if (!model)
    return model.error();
  if (Status status = check_explain_at(settings, (*model)->info()); !status)
    return status.error();
  // A conversation has no length of its own: a share of "the request" is a share of the context, and the end is open.
  options.expected_prompt = settings.ctx_size > 0 ? settings.ctx_size : (*model)->info().n_ctx_train;
  options.expected_generated = -1;
  options.branch_tokens = settings.kv_branch.value_or(0);
  if (Status status = pin_system(**model, settings, options); !status)
    return status.error();
  const uint32_t seed = resolve_seed(settings);
  options.seed = seed;
  Result<std::unique_ptr<Session>> session = Session::create(**model, options);
  if (!session)
    return session.error();
  choose_sampler(**session, settings, seed, false);
  Conversation conversation(**model, *std::move(session), settings);
  if (*exists) {
    if (Status status = conversation.load(settings.session); !status)
      return status.error();
  }
  const Session& held = conversation.session();
  Result<std::string> start = describe(**model, held.options());
  if (!start)
    return start.error();
  note(*start);

  conversation.outcome().preset = settings.preset;
  conversation.outcome().sampler = held.sampler();
  conversation.outcome().session_tokens = held.n_tokens();
  Result<int> code = loop(conversation, settings);
  if (!code)
    return code;
  const Session& ended = conversation.session();
  note(end_line(ended.stats(), conversation.outcome()));
  if (Status status = write_explanation(settings, **model, ended); !status)
    return status.error();
  if (Status status = write_reports(settings, ended, ended.stats(), conversation.outcome()); !status)
    return status.error();
  if (settings.session.empty() || settings.session_ro)
    return code;
  if (Status status = conversation.save(settings.session); !status)
    return status.error();
  return code;
}

}  // namespace kedge::cli
