#include "questions.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/output_file.h"
#include "console.h"
#include "engine.h"
#include "generate.h"
#include "prompt.h"
#include "run_report.h"
#include "run_session.h"
#include "signals.h"
#include "text_input.h"

namespace kedge::cli {
namespace {

Error usage(std::string message) { return {.code = ErrorCode::usage, .message = std::move(message)}; }

struct Question {
  std::string text;
  std::vector<Token> tokens;
};

struct Request {
  std::vector<Token> context;
  std::vector<Question> questions;
};

Result<SplitPrompt> parts_of(const Model& model, const Settings& settings, const std::string& text,
                             const std::string& question) {
  if (!settings.chat)
    return SplitPrompt{.context = text, .question = question};
  std::vector<ChatMessage> messages;
  if (!settings.system.empty())
    messages.push_back({.role = "system", .content = settings.system});
  messages.push_back({.role = "user", .content = text + "\n\n" + question});
  Result<std::string> rendered = model.apply_chat_template(messages, true, settings.chat_template);
  if (!rendered)
    return rendered.error();
  return split_rendered(*rendered, text);
}

Result<Request> read_request(const Model& model, const Settings& settings, const std::string& text,
                             const std::vector<std::string>& questions) {
  Request request;
  std::string context = text;
  for (const std::string& question : questions) {
    Result<SplitPrompt> parts = parts_of(model, settings, text, question);
    if (!parts)
      return parts.error();
    context = parts->context;
    Question asked{.text = question, .tokens = model.tokenize(parts->question, false, true)};
    if (asked.tokens.empty())
      return usage("the question '" + question + "' has no tokens");
    request.questions.push_back(std::move(asked));
  }
  if (!context.empty())
    request.context = model.tokenize(context, !settings.append, true);
  return request;
}

// Room for the longest question and its answer; not known where the answer has no limit.
int64_t branch_tokens(const Settings& settings, const Request& request) {
  if (settings.kv_branch)
    return *settings.kv_branch;
  if (settings.predict < 0)
    return -1;
  size_t longest = 0;
  for (const Question& question : request.questions)
    longest = std::max(longest, question.tokens.size());
  return static_cast<int64_t>(longest) + settings.predict;
}

// The end of the text, to come back to: a mark in the session, or the file it came from where its budget has no room
// for a branch.
class Context {
 public:
  Context(const Model& model, const Settings& settings, Session& session, bool as_saved)
      : model_(model), settings_(settings), session_(&session) {
    const SessionOptions& options = session.options();
    from_file_ = as_saved && options.branch_tokens == 0 && options.budget.kind != Budget::Kind::unlimited;
    if (!from_file_)
      session.mark();
  }

  Session& session() { return *session_; }
  Status come_back() {
    if (!from_file_)
      return session_->rewind();
    const SamplerOptions sampler = session_->sampler();
    Result<std::unique_ptr<Session>> again = Session::restore(model_, settings_.session);
    if (!again)
      return again.error();
    own_ = *std::move(again);
    session_ = own_.get();
    choose_sampler(*session_, settings_, sampler.seed, true);
    return {};
  }

 private:
  const Model& model_;
  const Settings& settings_;
  Session* session_;
  std::unique_ptr<Session> own_;
  bool from_file_ = false;
};

double rate(int64_t tokens, double seconds) { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0; }

nlohmann::ordered_json entry(const Question& question, const Answer& answer, const Stats& did) {
  return {{"question", question.text},
          {"answer", answer.text},
          {"question_tokens", question.tokens.size()},
          {"generated_tokens", answer.n_tokens},
          {"finish_reason", answer.finish_reason},
          {"prefill_tok_s", rate(did.prompt_tokens, did.prefill_seconds)},
          {"decode_tok_s", rate(did.generated_tokens, did.decode_seconds)},
          {"kv_live_bytes", did.kv_live_bytes},
          {"kv_peak_bytes", did.kv_peak_bytes},
          {"keep", did.keep},
          {"evicted_rows", did.evicted_rows},
          {"policy_ms", did.policy_ms}};
}

Status read_tokens(Session& session, const std::vector<Token>& tokens, const Settings& settings, const char* what) {
  if (tokens.empty())
    return {};
  Progress progress(settings.progress, what);
  return session.prefill(tokens, [&](int64_t done, int64_t total) {
    progress.update(done, total);
    return !stop_requested();
  });
}

// Answers all questions; `report` gets an entry for each that was answered.
Status answer_all(Context& context, const Model& model, const Settings& settings, const Request& request,
                  nlohmann::ordered_json& report) {
  for (size_t i = 0; i < request.questions.size(); ++i) {
    const Question& question = request.questions[i];
    if (i > 0) {
      if (Status status = context.come_back(); !status)
        return status;
    }
    const std::string number = "[" + std::to_string(i + 1) + "/" + std::to_string(request.questions.size()) + "] ";
    if (Status status = print_text((i > 0 ? "\n" : "") + number + question.text + "\n"); !status)
      return status;
    Session& session = context.session();
    const Stats before = session.stats();
    if (Status status = read_tokens(session, question.tokens, settings, "question"); !status)
      return status;
    const Result<Answer> answer = generate(model, session, {.n_predict = settings.predict}, print_text);
    if (!answer)
      return answer.error();
    if (Status status = print_text("\n"); !status)
      return status;
    const Stats did = since(session.stats(), before);
    note(number + end_line(did, {.generated_tokens = answer->n_tokens, .finish_reason = answer->finish_reason}));
    report.push_back(entry(question, *answer, did));
    if (stop_requested())
      break;
  }
  return {};
}

Status write_stats(const Settings& settings, const Session& session, const Stats& stats, const RunOutcome& outcome,
                   const nlohmann::ordered_json& questions) {
  if (settings.stats.empty())
    return {};
  auto json = nlohmann::ordered_json::parse(stats_json(stats, outcome, peak_rss_bytes(), session.layer_stats()));
  json["questions"] = questions;
  return write_file(settings.stats, json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

}  // namespace

bool asks_questions(const Settings& settings) {
  return !settings.questions.empty() || !settings.questions_file.empty();
}

Result<std::vector<std::string>> read_questions(const Settings& settings) {
  std::vector<std::string> questions = settings.questions;
  if (!settings.questions_file.empty()) {
    Result<std::string> text = read_text(settings.questions_file);
    if (!text)
      return text.error();
    std::istringstream lines(*text);
    for (std::string line; std::getline(lines, line);) {
      if (!line.empty() && line.back() == '\r')
        line.pop_back();
      if (line.find_first_not_of(" \t") != std::string::npos)
        questions.push_back(line);
    }
  }
  if (questions.empty())
    return usage("--questions: '" + settings.questions_file + "' holds no question");
  return questions;
}

Result<SplitPrompt> split_rendered(const std::string& rendered, const std::string& text) {
  // A template may trim what a message begins and ends with.
  const size_t begin = text.find_first_not_of(" \t\r\n");
  const std::string kept = begin == std::string::npos ? std::string() : text.substr(begin);
  const size_t found = rendered.find(kept);
  if (found == std::string::npos)
    return usage("this chat template changes the text of a message: --question needs one that does not");
  const size_t end = found + kept.size();
  return SplitPrompt{.context = rendered.substr(0, end), .question = rendered.substr(end)};
}

Result<int> ask_questions(const Settings& settings, SessionOptions options) {
  const Result<bool> exists = session_exists(settings);
  if (!exists)
    return exists.error();
  const bool needs_text = !*exists || settings.file || settings.prompt;
  Result<std::string> text = needs_text ? read_prompt(settings) : std::string();
  if (!text)
    return text.error();
  if (text->empty() && !*exists)
    return usage("--question needs a text to ask about: -f FILE or -p TEXT");
  const Result<std::vector<std::string>> questions = read_questions(settings);
  if (!questions)
    return questions.error();
  Result<std::unique_ptr<Model>> model = load_model(settings, settings.model);
  if (!model)
    return model.error();
  const Result<Request> request = read_request(**model, settings, *text, *questions);
  if (!request)
    return request.error();
  const uint32_t seed = resolve_seed(settings);
  options.seed = seed;
  options.expected_prompt = static_cast<int64_t>(request->context.size());
  options.expected_generated = 0;
  options.branch_tokens = branch_tokens(settings, *request);
  if (Status status = pin_system(**model, settings, options); !status)
    return status.error();
  Result<Opened> opened =
      open_session(**model, settings, options, needs_text ? request->context : std::vector<Token>{});
  if (!opened)
    return opened.error();
  Session& session = *opened->session;
  choose_sampler(session, settings, seed, opened->restored);
  const Result<std::string> start = describe(**model, session.options());
  if (!start)
    return start.error();
  note(*start);

  const Stats before = session.stats();
  nlohmann::ordered_json answers = nlohmann::ordered_json::array();
  RunOutcome outcome{.finish_reason = "questions",
                     .preset = settings.preset,
                     .sampler = session.sampler(),
                     .session_tokens = opened->reused_tokens};
  Status status = read_tokens(session, opened->unread, settings, "prompt");
  const Stats read = since(session.stats(), before);
  if (status) {
    status = save_session(settings, session, opened->unread.empty() ? session.app_data() : std::string());
    if (status && !settings.kv_map.empty())
      status = write_file(settings.kv_map, kv_map_json(session.kv_map()));
    if (!status)
      return status.error();
    const bool in_file = opened->restored && (opened->unread.empty() || !settings.session_ro);
    Context context(**model, settings, session, in_file);
    status = answer_all(context, **model, settings, *request, answers);
  }
  if (!status && status.error().code != ErrorCode::cancelled)
    return status.error();
  for (const auto& answer : answers)
    outcome.generated_tokens += answer["generated_tokens"].get<int64_t>();
  if (stop_requested())
    outcome.finish_reason = "interrupted";
  if (Status written = write_stats(settings, session, read, outcome, answers); !written)
    return written.error();
  return signal_exit_code();
}

}  // namespace kedge::cli
