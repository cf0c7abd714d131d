// kedge perplexity: teacher-forced windows of a text, and what a policy loses against the full cache.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "console.h"
#include "engine.h"
#include "kedge/policy.h"
#include "kl.h"
#include "prompt.h"
#include "signals.h"
#include "text_input.h"
#include "verbs.h"
#include "windows.h"

namespace kedge::cli {
namespace {

using Row = std::span<const float>;  // logits f32 [n_vocab]
using EachRow = std::function<void(size_t index, Row logits)>;

struct WindowScore {
  int64_t offset = 0;
  std::vector<double> nll, full_nll, kld;  // [continue]; the last two empty without the full cache
  int64_t n_same_top = 0;
  double keep = 1;  // after the eviction that follows the prompt
  int64_t kv_peak_bytes = 0;
  int64_t kv_budget_bytes = 0;
  int64_t evicted_rows = 0;
  std::string policy;

  double same_top() const {
    return kld.empty() ? 1 : static_cast<double>(n_same_top) / static_cast<double>(kld.size());
  }
};

struct Job {
  const Model& model;
  SessionOptions options;
  std::vector<Token> text;
  std::vector<int64_t> offsets;
  int64_t context = 0;
  int64_t continuation = 0;
  uint64_t seed = 0;
  bool with_full = false;
};

// Reads one window: its prompt, then its continuation teacher-forced. `each` gets the row that predicts token `index`
// of the continuation; `after_prompt` sees the session when the eviction is done and the first row not yet scored.
Status read_window(const Job& job, const SessionOptions& options, int64_t offset, const EachRow& each,
                   WindowScore* score) {
  Result<std::unique_ptr<Session>> session = Session::create(job.model, options);
  if (!session) return session.error();
  const std::span<const Token> window = std::span(job.text).subspan(static_cast<size_t>(offset));
  const auto go_on = [](int64_t, int64_t) { return !stop_requested(); };
  if (Status status = (*session)->prefill(window.first(static_cast<size_t>(job.context)), go_on); !status)
    return status;
  if (score != nullptr) score->keep = (*session)->stats().keep;
  each(0, (*session)->logits());
  if (job.continuation > 1) {
    const auto rest = window.subspan(static_cast<size_t>(job.context), static_cast<size_t>(job.continuation - 1));
    const Status status =
        (*session)->score(rest, [&each](int64_t i, Row row) { each(static_cast<size_t>(i + 1), row); });
    if (!status.ok()) return status;
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

// One window. Full cache first, its rows kept (f32 [continue][n_vocab]), its session gone before the next one begins.
Result<WindowScore> score_window(const Job& job, int64_t offset) {
  WindowScore score;
  score.offset = offset;
  const Token* targets = job.text.data() + offset + job.context;
  const auto n_vocab = static_cast<size_t>(job.model.info().n_vocab);
  std::vector<float> full;
  if (job.with_full) {
    full.resize(static_cast<size_t>(job.continuation) * n_vocab);
    SessionOptions reference = job.options;
    reference.budget = Budget();
    reference.policy = "none";
    reference.sinks.clear();
    reference.recent.clear();
    const auto keep_row = [&](size_t i, Row row) {
      std::copy(row.begin(), row.end(), full.begin() + static_cast<std::ptrdiff_t>(i * n_vocab));
      score.full_nll.push_back(negative_log_likelihood(row, targets[i]));
    };
    if (Status status = read_window(job, reference, offset, keep_row, nullptr); !status) return status.error();
  }
  const auto compare_row = [&](size_t i, Row row) {
    score.nll.push_back(negative_log_likelihood(row, targets[i]));
    if (!job.with_full) return;
    const Row reference(full.data() + i * n_vocab, n_vocab);
    score.kld.push_back(kl_divergence(reference, row));
    score.n_same_top += top_token(reference) == top_token(row) ? 1 : 0;
  };
  if (Status status = read_window(job, job.options, offset, compare_row, &score); !status) return status.error();
  return score;
}

// All windows together. Every window has the same number of tokens: means over tokens are means over windows.
struct Totals {
  std::vector<double> nll, full_nll, kld, same_top, keep;  // [window], means
  std::vector<double> all_kld;                             // [window * token]
  int64_t kv_peak_bytes = 0;
  int64_t evicted_rows = 0;

  void add(const WindowScore& score) {
    nll.push_back(mean(score.nll));
    keep.push_back(score.keep);
    kv_peak_bytes = std::max(kv_peak_bytes, score.kv_peak_bytes);
    evicted_rows += score.evicted_rows;
    if (score.kld.empty()) return;
    full_nll.push_back(mean(score.full_nll));
    kld.push_back(mean(score.kld));
    same_top.push_back(score.same_top());
    all_kld.insert(all_kld.end(), score.kld.begin(), score.kld.end());
  }
  double ppl() const { return std::exp(mean(nll)); }
  // Of exp(x), to first order: exp(x) times the error of x.
  std::optional<double> ppl_error() const {
    const std::optional<double> error = standard_error(nll);
    return error ? std::optional(ppl() * *error) : std::nullopt;
  }
};

nlohmann::ordered_json number_or_null(std::optional<double> value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

std::string as_json(const Job& job, const std::vector<WindowScore>& scores, const Totals& totals) {
  nlohmann::ordered_json windows = nlohmann::ordered_json::array();
  for (const WindowScore& score : scores) {
    windows.push_back({{"offset", score.offset},
                       {"kld_mean", mean(score.kld)},
                       {"nll", mean(score.nll)},
                       {"full_nll", mean(score.full_nll)},
                       {"same_top", score.same_top()},
                       {"keep", score.keep}});
  }
  const nlohmann::ordered_json json = {
      {"ppl", totals.ppl()},
      {"full_ppl", std::exp(mean(totals.full_nll))},
      {"kld_mean", mean(totals.kld)},
      {"kld_p99", quantile(totals.all_kld, 0.99)},
      {"kld_max", quantile(totals.all_kld, 1)},
      {"same_top", mean(totals.same_top)},
      {"kv_peak_bytes", totals.kv_peak_bytes},
      {"keep", mean(totals.keep)},
      {"ppl_se", number_or_null(totals.ppl_error())},
      {"kld_se", number_or_null(standard_error(totals.kld))},
      {"same_top_se", number_or_null(standard_error(totals.same_top))},
      {"windows", windows},
      {"kv_budget_bytes", scores.front().kv_budget_bytes},
      {"evicted_rows", totals.evicted_rows},
      {"context", job.context},
      {"continue", job.continuation},
      {"samples", scores.size()},
      {"seed", job.seed},
      {"policy", scores.front().policy},
  };
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string with_error(double value, std::optional<double> error, int decimals) {
  return format_real(value, decimals) + (error ? " +/- " + format_real(*error, decimals) : "");
}

std::string as_text(const Job& job, const std::vector<WindowScore>& scores, const Totals& totals) {
  std::string text;
  if (job.with_full) {
    text += "full PPL = " + format_real(std::exp(mean(totals.full_nll)), 4) + "\n";
    text += "KLD mean = " + with_error(mean(totals.kld), standard_error(totals.kld), 6) +
            ", p99 = " + format_real(quantile(totals.all_kld, 0.99), 6) +
            ", max = " + format_real(quantile(totals.all_kld, 1), 6) + "\n";
    const std::optional<double> error = standard_error(totals.same_top);
    text +=
        "same top token = " + with_error(100 * mean(totals.same_top), error ? std::optional(100 * *error) : error, 2) +
        " %\n";
  }
  text += "KV peak = " + format_bytes(totals.kv_peak_bytes) + " of " + format_bytes(scores.front().kv_budget_bytes) +
          ", kept " + format_percent(mean(totals.keep)) + ", policy " + scores.front().policy + "\n";
  return text + "PPL = " + with_error(totals.ppl(), totals.ppl_error(), 4);
}

// Windows in a row, with running values. Errors of the session, and cancelled.
Status score_all(const Job& job, const Settings& settings, std::vector<WindowScore>& scores, Totals& totals) {
  Progress progress(settings.progress, "window");
  const auto n_windows = static_cast<int64_t>(job.offsets.size());
  for (const int64_t offset : job.offsets) {
    if (stop_requested()) return Error{.code = ErrorCode::cancelled, .message = "interrupted"};
    Result<WindowScore> score = score_window(job, offset);
    if (!score) return score.error();
    totals.add(*score);
    scores.push_back(*std::move(score));
    const auto n = static_cast<int64_t>(scores.size());
    if (progress.json()) {
      progress.update(n, n_windows);
      continue;
    }
    std::string line = "window " + std::to_string(n) + "/" + std::to_string(n_windows) + " at token " +
                       std::to_string(offset) + ": PPL so far " + format_real(totals.ppl(), 4);
    if (job.with_full) {
      line += ", KLD " + format_real(mean(scores.back().kld), 4) + ", so far " + format_real(mean(totals.kld), 4) +
              ", same top " + format_percent(mean(totals.same_top));
    }
    progress.line(line + ", kept " + format_percent(mean(totals.keep)));
  }
  return {};
}

Result<std::string> perplexity(const Settings& settings) {
  Result<SessionOptions> options = session_options(settings);
  if (!options) return options.error();
  if (settings.model.empty()) return load_model(settings, settings.model).error();
  if (!settings.file && stdin_is_terminal()) {
    return Error{.code = ErrorCode::usage, .message = "no text: give -f FILE (- is standard input)"};
  }
  Result<std::string> text = read_text(settings.file.value_or("-"));
  if (!text) return text.error();
  Result<std::unique_ptr<Model>> model = load_model(settings, settings.model);
  if (!model) return model.error();

  Job job{.model = **model,
          .options = *options,
          .text = (*model)->tokenize(*text, false, false),
          .offsets = {},
          .context = settings.context,
          .continuation = settings.continuation,
          .seed = settings.seed && *settings.seed >= 0 ? static_cast<uint64_t>(*settings.seed) : 0,
          .with_full = settings.json || settings.kl_divergence};
  const auto n_tokens = static_cast<int64_t>(job.text.size());
  const int64_t length = job.context + job.continuation;
  Result<std::vector<int64_t>> offsets =
      settings.offsets.empty()
          ? sample_offsets({.n_tokens = n_tokens, .length = length, .samples = settings.samples, .seed = job.seed})
          : parse_offsets(settings.offsets, n_tokens, length);
  if (!offsets) return offsets.error();
  job.offsets = *offsets;
  job.options.seed = job.seed;
  job.options.hold_continuation = true;
  job.options.expected_prompt = job.context;
  job.options.expected_generated = job.continuation;

  const Result<std::string> policy = resolve_policy(effective_policy(job.options));
  if (!policy) return policy.error();
  Result<std::string> start = describe(**model, job.options, *policy);
  if (!start) return start.error();
  note(*start);
  std::vector<WindowScore> scores;
  Totals totals;
  if (Status status = score_all(job, settings, scores, totals); !status) return status.error();
  return settings.json ? as_json(job, scores, totals) : as_text(job, scores, totals);
}

}  // namespace

int perplexity_verb(const Settings& settings) {
  if (!settings.positional.empty()) {
    return report({.code = ErrorCode::usage,
                   .message = "unexpected argument '" + settings.positional.front() + "' (a text is given with -f)"});
  }
  const Result<std::string> result = perplexity(settings);
  if (!result.ok()) return report(result.error());
  const Status status = print_text(result.value() + "\n");
  return status.ok() ? 0 : report(status.error());
}

}  // namespace kedge::cli
