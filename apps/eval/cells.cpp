#include "eval/cells.h"

#include <sys/resource.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "cli/signals.h"
#include "eval/metrics.h"
#include "eval/random.h"

namespace kedge::eval {
namespace {

const std::string kMark = "\x01KEDGE\x01";

// Errors of one cell's request, not of the machine: they stand in its rows and the run goes on.
bool belongs_to_cell(ErrorCode code) {
  return code == ErrorCode::budget_impossible || code == ErrorCode::context_too_long || code == ErrorCode::usage;
}

bool go_on(int64_t, int64_t) { return !cli::stop_requested(); }

Error interrupted() { return {.code = ErrorCode::cancelled, .message = "interrupted"}; }

Token likeliest(std::span<const float> logits) {
  return static_cast<Token>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// The answer ends before a newline that follows something that is no space. npos: it does not.
size_t answer_end(const std::string& text) {
  const size_t start = text.find_first_not_of(" \t\r\n");
  return start == std::string::npos ? std::string::npos : text.find('\n', start);
}

int64_t process_peak_bytes() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

void note_held(const Session& session, CellRecord& record, Row& row) {
  const Stats stats = session.stats();
  row.keep = stats.keep;
  row.kv_live_bytes = stats.kv_live_bytes;
  row.kv_full_bytes = stats.kv_full_bytes;
  if (!record.rows_per_head.empty())
    return;
  for (const auto& layer : session.kv_map().layers) {
    std::vector<int64_t> rows;
    for (const auto& head : layer)
      rows.push_back(static_cast<int64_t>(head.size()));
    record.rows_per_head.push_back(std::move(rows));
  }
}

void note_done(const Session& session, CellRecord& record, Row& row) {
  const Stats stats = session.stats();
  row.kv_peak_bytes = stats.kv_peak_bytes;
  row.evicted_rows = stats.evicted_rows;
  row.policy_ms = stats.policy_ms;
  record.rss_peak_bytes = process_peak_bytes();
  if (!record.memory.empty())
    return;
  for (const MemoryPoint& point : session.memory_trace())
    record.memory.push_back({point.tokens, point.kv_live_bytes, point.evicted_rows});
}

}  // namespace

std::vector<cli::Comparison> compare_rows(const LogitRows& full, const LogitRows& other, std::span<const Token> targets,
                                          int n_threads) {
  std::vector<cli::Comparison> out(other.n_rows());
  const auto share = [&](size_t first) {
    for (size_t i = first; i < out.size(); i += static_cast<size_t>(n_threads))
      out[i] = cli::compare(full.row(i), other.row(i), targets[i]);
  };
  std::vector<std::thread> threads;
  for (int t = 1; t < n_threads; ++t)
    threads.emplace_back(share, static_cast<size_t>(t));
  share(0);
  for (std::thread& thread : threads)
    thread.join();
  return out;
}

Result<Prompt> make_prompt(const Model& model, const Config& config, const Sample& sample) {
  Prompt prompt{.continuation = sample.continuation};
  std::vector<Token> after;  // of the template, behind the question
  if (config.chat) {
    const ChatMessage message{.role = "user", .content = kMark};
    Result<std::string> text = model.apply_chat_template({&message, 1}, true, "");
    if (!text)
      return text.error();
    const size_t at = text->find(kMark);
    if (at == std::string::npos)
      return Error{.code = ErrorCode::usage, .message = "--chat: the model's template drops or changes the message"};
    prompt.context = model.tokenize(text->substr(0, at), true, true);
    prompt.n_system = static_cast<int64_t>(prompt.context.size());
    after = model.tokenize(text->substr(at + kMark.size()), false, true);
  } else {
    prompt.context = model.tokenize("", true, false);
  }
  prompt.context.insert(prompt.context.end(), sample.context.begin(), sample.context.end());
  for (const Question& question : sample.questions) {
    prompt.questions.push_back(model.tokenize(question.text, false, false));
    prompt.questions.back().insert(prompt.questions.back().end(), after.begin(), after.end());
  }
  return prompt;
}

SampleRun::SampleRun(const Engine& engine, const Config& config, std::string task, Sample sample, Prompt prompt)
    : engine_(engine),
      config_(config),
      task_(std::move(task)),
      sample_(std::move(sample)),
      prompt_(std::move(prompt)) {}

int64_t SampleRun::held_bytes() const {
  int64_t bytes = full_rows_ ? static_cast<int64_t>(full_rows_->values.size() * sizeof(float)) : 0;
  for (const auto& [question, prefix] : prefixes_)
    bytes += prefix.session->stats().kv_live_bytes;
  return bytes;
}

std::vector<Token> SampleRun::prompt_tokens(size_t question) const {
  std::vector<Token> tokens = prompt_.context;
  if (config_.question_aware && question < prompt_.questions.size())
    tokens.insert(tokens.end(), prompt_.questions[question].begin(), prompt_.questions[question].end());
  return tokens;
}

SessionOptions SampleRun::options_of(const Cell& cell, size_t question, bool trace_memory) const {
  SessionOptions options = engine_.base;
  options.budget = cell.budget;
  options.policy = cell.policy_text;
  options.seed = Random(config_.seed, task_ + "|" + sample_.id).next();
  options.hold_continuation = !config_.decode_evicts;
  options.trace_memory = trace_memory;
  if (config_.pin_system && prompt_.n_system > 0)
    options.protect.spans.push_back({.begin = 0, .end = prompt_.n_system});
  options.expected_prompt = static_cast<int64_t>(prompt_tokens(question).size());
  options.expected_generated = static_cast<int64_t>(prompt_.continuation.size());
  if (question < sample_.questions.size()) {
    const size_t asked = config_.question_aware ? 0 : prompt_.questions[question].size();
    options.expected_generated = static_cast<int64_t>(asked) + sample_.questions[question].max_tokens;
  }
  return options;
}

Result<const SampleRun::Prefix*> SampleRun::prefix(size_t question) {
  const size_t key = config_.question_aware ? question : 0;
  if (const auto found = prefixes_.find(key); found != prefixes_.end())
    return &found->second;
  SessionOptions options = options_of({.policy = "none", .policy_text = "none", .budget = {}}, question, false);
  options.n_observed = engine_.n_observed;
  options.histories = engine_.histories;
  options.gate_mode.clear();  // what all others are measured against
  options.n_ctx = static_cast<int>(options.expected_prompt);
  Result<std::unique_ptr<Session>> session = Session::create(engine_.model, options);
  if (!session)
    return session.error();
  const Stopwatch watch;
  if (Status status = (*session)->prefill(prompt_tokens(question), go_on); !status)
    return status.error();
  Prefix& made = prefixes_[key];
  made = {.session = *std::move(session), .seconds = watch.seconds()};
  return &made;
}

// A session that has read the prompt and was evicted as the cell says.
Result<std::unique_ptr<Session>> SampleRun::open(const Cell& cell, size_t question, bool trace_memory, Row& row) {
  const SessionOptions options = options_of(cell, question, trace_memory);
  Result<BudgetMeaning> meaning = explain_budget(engine_.model, options);
  if (!meaning)
    return meaning.error();
  if (engine_.share_prefix && meaning->one_chunk) {
    Result<const Prefix*> full = prefix(question);
    if (!full)
      return full.error();
    row.prefill_s = (*full)->seconds;
    return (*full)->session->fork(options);
  }
  Result<std::unique_ptr<Session>> session = Session::create(engine_.model, options);
  if (!session)
    return session;
  if (Status status = (*session)->prefill(prompt_tokens(question), go_on); !status)
    return status.error();
  row.prefill_s = (*session)->stats().prefill_seconds;
  return session;
}

Status SampleRun::ask(const Cell& cell, size_t question, bool trace_memory, Row& row, CellRecord& record) {
  const Question& asked = sample_.questions[question];
  Result<std::unique_ptr<Session>> session = open(cell, question, trace_memory, row);
  if (!session)
    return session.error();
  note_held(**session, record, row);
  const Stopwatch watch;
  if (!config_.question_aware && !prompt_.questions[question].empty()) {
    if (Status status = (*session)->prefill(prompt_.questions[question], go_on); !status)
      return status;
  }
  std::vector<Token> answer;
  while (static_cast<int>(answer.size()) < asked.max_tokens) {
    if (cli::stop_requested())
      return interrupted();
    const Token token = likeliest((*session)->logits());
    if (engine_.model.is_end_of_generation(token))
      break;
    answer.push_back(token);
    row.prediction = engine_.model.detokenize(answer);
    const size_t end = asked.stop_at_newline ? answer_end(row.prediction) : std::string::npos;
    if (end != std::string::npos) {
      row.prediction.resize(end);
      break;
    }
    if (static_cast<int>(answer.size()) == asked.max_tokens)
      break;
    if (Status status = (*session)->decode(token); !status)
      return status;
  }
  row.decode_s = watch.seconds();
  row.n_generated = static_cast<int64_t>(answer.size());
  row.score = find_metric(asked.metric)->score(row.prediction, asked.answers);
  note_done(**session, record, row);
  return {};
}

Result<LogitRows> SampleRun::rows_of(const Cell& cell, Row& row, CellRecord& record, bool trace_memory) {
  Result<std::unique_ptr<Session>> session = open(cell, 0, trace_memory, row);
  if (!session)
    return session.error();
  note_held(**session, record, row);
  const Stopwatch watch;
  Result<LogitRows> rows = score_continuation(**session);
  if (!rows)
    return rows;
  row.decode_s = watch.seconds();
  note_done(**session, record, row);
  return rows;
}

// Of a session that has read the prompt.
Result<LogitRows> SampleRun::score_continuation(Session& session) const {
  LogitRows rows{.n_vocab = static_cast<size_t>(engine_.model.info().n_vocab)};
  const auto add = [&rows](int64_t, std::span<const float> logits) {
    rows.values.insert(rows.values.end(), logits.begin(), logits.end());
  };
  rows.values.reserve(prompt_.continuation.size() * rows.n_vocab);
  add(0, session.logits());
  const std::span<const Token> fed = std::span(prompt_.continuation).first(prompt_.continuation.size() - 1);
  if (Status status = session.score(fed, add); !status)
    return status.error();
  return rows;
}

// The full cache in f16: shared with the cells where their rows are f16 too.
Result<LogitRows> SampleRun::own_reference() {
  const Cell full{.policy = "none", .policy_text = "none", .budget = {}};
  if (engine_.base.cache_type_k == "f16" && engine_.base.cache_type_v == "f16") {
    CellRecord ignored;
    Row row;
    return rows_of(full, row, ignored, false);
  }
  SessionOptions options = options_of(full, 0, false);
  options.cache_type_k = options.cache_type_v = "f16";
  Result<std::unique_ptr<Session>> session = Session::create(engine_.model, options);
  if (!session)
    return session.error();
  if (Status status = (*session)->prefill(prompt_tokens(0), go_on); !status)
    return status.error();
  return score_continuation(**session);
}

Result<const LogitRows*> SampleRun::full_rows() {
  if (full_rows_)
    return &*full_rows_;
  if (engine_.reference == nullptr) {
    Result<LogitRows> rows = own_reference();
    if (!rows)
      return rows.error();
    full_rows_ = *std::move(rows);
    return &*full_rows_;
  }
  llama_side::LlamaSide& other = *engine_.reference;
  LogitRows rows{.n_vocab = static_cast<size_t>(other.n_vocab())};
  const auto add = [&rows](int64_t, std::span<const float> logits) {
    rows.values.insert(rows.values.end(), logits.begin(), logits.end());
  };
  other.clear();
  if (Result<double> read = other.append(prompt_.context); !read)
    return read.error();
  add(0, other.logits());
  const std::span<const Token> fed = std::span(prompt_.continuation).first(prompt_.continuation.size() - 1);
  if (Status status = other.score(fed, add); !status)
    return status.error();
  other.rest();
  full_rows_ = std::move(rows);
  return &*full_rows_;
}

Status SampleRun::score(const Cell& cell, bool trace_memory, Row& row, CellRecord& record) {
  Result<const LogitRows*> full = full_rows();
  if (!full)
    return full.error();
  Result<LogitRows> rows = rows_of(cell, row, record, trace_memory);
  if (!rows)
    return rows.error();
  std::vector<double> nll;
  std::vector<double> full_nll;
  std::vector<double> kld;
  double same_top = 0;
  for (const cli::Comparison& c : compare_rows(**full, *rows, prompt_.continuation, engine_.model.info().n_threads)) {
    nll.push_back(c.nll);
    full_nll.push_back(c.full_nll);
    kld.push_back(c.kld);
    same_top += c.same_top ? 1 : 0;
  }
  row.n_generated = static_cast<int64_t>(nll.size());
  row.nll = cli::mean(nll);
  row.full_nll = cli::mean(full_nll);
  row.kld_mean = cli::mean(kld);
  row.kld_p99 = cli::quantile(kld, 0.99);
  row.kld_max = *std::ranges::max_element(kld);
  row.same_top = same_top / static_cast<double>(nll.size());
  return {};
}

Row SampleRun::empty_row(const Cell& cell) const {
  return {.task = task_,
          .sample = sample_.id,
          .length = sample_.length,
          .depth = sample_.depth >= 0 ? Value(sample_.depth) : Value(),
          .seed = sample_.seed,
          .policy = cell.policy,
          .budget = cell.budget_text()};
}

// Beyond the trained length positions mean nothing to the model: not measured unless --ctx-size says so.
Status SampleRun::fits_context(const Cell& cell, size_t question) const {
  const int64_t limit = engine_.base.n_ctx > 0 ? engine_.base.n_ctx : engine_.model.info().n_ctx_train;
  const SessionOptions options = options_of(cell, question, false);
  const int64_t wanted = options.expected_prompt + options.expected_generated;
  if (wanted <= limit)
    return {};
  return Error{.code = ErrorCode::context_too_long,
               .message = "prompt and answer make " + std::to_string(wanted) + " tokens and the context holds " +
                          std::to_string(limit)};
}

Result<CellRecord> SampleRun::run(const Cell& cell, bool trace_memory) {
  CellRecord record{.cell = cell.key(task_, sample_)};
  const bool scored = !prompt_.continuation.empty();
  const size_t n = scored ? 1 : sample_.questions.size();
  for (size_t question = 0; question < n; ++question) {
    Row row = empty_row(cell);
    row.question = static_cast<int64_t>(question);
    row.n_context = static_cast<int64_t>(prompt_tokens(question).size());
    if (!scored) {
      row.metric = sample_.questions[question].metric;
      row.answers = sample_.questions[question].answers;
    }
    const bool trace = trace_memory && question == 0;
    Status status = fits_context(cell, question);
    if (status)
      status = scored ? score(cell, trace, row, record) : ask(cell, question, trace, row, record);
    if (!status.ok()) {
      if (!belongs_to_cell(status.error().code))
        return status.error();
      row.error = status.error().message;
      row.score = {};
    }
    record.rows.push_back(std::move(row));
  }
  return record;
}

}  // namespace kedge::eval
