// kedge perplexity: teacher-forced windows of a text, and what a policy loses against the full cache.
#include <algorithm>
#include <cstdio>

#include "console.h"
#include "engine.h"
#include "kedge/policy.h"
#include "kl.h"
#include "perplexity_report.h"
#include "prompt.h"
#include "signals.h"
#include "text_input.h"
#include "verbs.h"
#include "windows.h"

namespace kedge::cli {
namespace {

using Row = std::span<const float>;  // logits f32 [n_vocab]
using EachRow = std::function<void(size_t index, Row logits)>;

struct Job {
  const Model& model;
  SessionOptions options;
  std::vector<Token> text;
  std::vector<int64_t> offsets;
  PerplexityReport::Request request;
};

// Reads one window: its prompt, then its continuation teacher-forced. `each` gets the row that predicts token `index`
// of the continuation. `score`, if any, gets what the session held.
Status read_window(const Job& job, const SessionOptions& options, int64_t offset, const EachRow& each,
                   WindowScore* score) {
  Result<std::unique_ptr<Session>> session = Session::create(job.model, options);
  if (!session)
    return session.error();
  const std::span<const Token> window = std::span(job.text).subspan(static_cast<size_t>(offset));
  const auto go_on = [](int64_t, int64_t) { return !stop_requested(); };
  if (Status status = (*session)->prefill(window.first(static_cast<size_t>(job.request.context)), go_on); !status)
    return status;
  if (score != nullptr)
    score->keep = (*session)->stats().keep;
  each(0, (*session)->logits());
  if (job.request.continuation > 1) {
    const auto rest =
        window.subspan(static_cast<size_t>(job.request.context), static_cast<size_t>(job.request.continuation - 1));
    const Status status =
        (*session)->score(rest, [&each](int64_t i, Row row) { each(static_cast<size_t>(i + 1), row); });
    if (!status.ok())
      return status;
  }
  if (score != nullptr) {
    const Stats stats = (*session)->stats();
    score->kv_peak_bytes = stats.kv_peak_bytes;
    score->kv_budget_bytes = stats.kv_budget_bytes;
    score->evicted_rows = stats.evicted_rows;
    score->policy = stats.policy;
  }
  return {};
}

// One window. Full cache in f16 first, its rows kept (f32 [continue][n_vocab]), its session gone before the next one
// begins.
Result<WindowScore> score_window(const Job& job, int64_t offset) {
  WindowScore score;
  score.offset = offset;
  const Token* targets = job.text.data() + offset + job.request.context;
  const auto n_vocab = static_cast<size_t>(job.model.info().n_vocab);
  std::vector<float> full;
  if (job.request.with_full) {
    full.resize(static_cast<size_t>(job.request.continuation) * n_vocab);
    SessionOptions reference = job.options;
    reference.budget = Budget();
    reference.policy = "none";
    reference.sinks.clear();
    reference.recent.clear();
    reference.cache_type_k = reference.cache_type_v = "f16";
    const auto keep_row = [&](size_t i, Row row) {
      std::copy(row.begin(), row.end(), full.begin() + static_cast<std::ptrdiff_t>(i * n_vocab));
    };
    if (Status status = read_window(job, reference, offset, keep_row, nullptr); !status)
      return status.error();
  }
  const auto compare_row = [&](size_t i, Row row) {
    if (!job.request.with_full) {
      score.nll.push_back(negative_log_likelihood(row, targets[i]));
      return;
    }
    const Comparison comparison = compare(Row(full.data() + i * n_vocab, n_vocab), row, targets[i]);
    score.nll.push_back(comparison.nll);
    score.full_nll.push_back(comparison.full_nll);
    score.kld.push_back(comparison.kld);
    score.n_same_top += comparison.same_top ? 1 : 0;
  };
  if (Status status = read_window(job, job.options, offset, compare_row, &score); !status)
    return status.error();
  return score;
}

// Windows in a row, with running values. Errors of the session, and cancelled.
Status score_all(const Job& job, const Settings& settings, PerplexityReport& report) {
  Progress progress(settings.progress, "window");
  for (const int64_t offset : job.offsets) {
    if (stop_requested())
      return Error{.code = ErrorCode::cancelled, .message = "interrupted"};
    Result<WindowScore> score = score_window(job, offset);
    if (!score)
      return score.error();
    report.add(*std::move(score));
    if (progress.json()) {
      progress.update(report.n_windows(), job.request.n_windows);
    } else {
      progress.line(report.running_line());
    }
  }
  return {};
}

Result<std::vector<int64_t>> window_offsets(const Job& job, const Settings& settings) {
  const auto n_tokens = static_cast<int64_t>(job.text.size());
  const int64_t length = job.request.context + job.request.continuation;
  if (!settings.offsets.empty()) {
    const Result<std::vector<int64_t>> asked = parse_offsets(settings.offsets);
    if (!asked)
      return asked.error();
    const Result<std::vector<int64_t>> offsets = fit_offsets(*asked, n_tokens, length);
    for (size_t i = 0; offsets && i < asked->size(); ++i) {
      if ((*offsets)[i] == (*asked)[i])
        continue;
      std::fprintf(stderr, "kedge: the window at %lld reaches beyond the text's %lld tokens; moved to %lld\n",
                   static_cast<long long>((*asked)[i]), static_cast<long long>(n_tokens),
                   static_cast<long long>((*offsets)[i]));
    }
    return offsets;
  }
  return sample_offsets(
      {.n_tokens = n_tokens, .length = length, .samples = settings.samples, .seed = job.request.seed});
}

Result<std::string> perplexity(const Settings& settings) {
  Result<SessionOptions> options = session_options(settings);
  if (!options)
    return options.error();
  if (settings.model.empty())
    return load_model(settings, settings.model).error();
  if (!settings.file && stdin_is_terminal()) {
    return Error{.code = ErrorCode::usage, .message = "no text: give -f FILE (- is standard input)"};
  }
  Result<std::string> text = read_text(settings.file.value_or("-"));
  if (!text)
    return text.error();
  Result<std::unique_ptr<Model>> model = load_model(settings, settings.model);
  if (!model)
    return model.error();

  Job job{.model = **model,
          .options = *options,
          .text = (*model)->tokenize(*text, false, false),
          .offsets = {},
          .request = {.context = settings.context,
                      .continuation = settings.continuation,
                      .seed = settings.seed && *settings.seed >= 0 ? static_cast<uint64_t>(*settings.seed) : 0,
                      .with_full = settings.json || settings.kl_divergence}};
  Result<std::vector<int64_t>> offsets = window_offsets(job, settings);
  if (!offsets)
    return offsets.error();
  job.offsets = *std::move(offsets);
  job.request.n_windows = static_cast<int64_t>(job.offsets.size());
  job.options.seed = job.request.seed;
  job.options.hold_continuation = true;
  job.options.expected_prompt = job.request.context;
  job.options.expected_generated = job.request.continuation;

  Result<std::string> start = describe(**model, job.options);
  if (!start)
    return start.error();
  note(*start);
  PerplexityReport report(job.request);
  if (Status status = score_all(job, settings, report); !status)
    return status.error();
  return settings.json ? report.json() : report.text();
}

}  // namespace

int perplexity_verb(const Settings& settings) {
  if (!settings.positional.empty()) {
    return report({.code = ErrorCode::usage,
                   .message = "unexpected argument '" + settings.positional.front() + "' (a text is given with -f)"});
  }
  const Result<std::string> result = perplexity(settings);
  if (!result.ok())
    return report(result.error());
  const Status status = print_text(result.value() + "\n");
  return status.ok() ? 0 : report(status.error());
}

}  // namespace kedge::cli
