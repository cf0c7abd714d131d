#include "run_report.h"

#include <sys/resource.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/output_file.h"
#include "engine.h"
#include "explain.h"

namespace kedge::cli {
namespace {

// ", protected 12 in spans, 30 in phrases"; empty where nothing is.
std::string protected_text(const Stats& stats) {
  std::string text;
  const auto add = [&text](int64_t n, const char* what) {
    if (n > 0)
      text += (text.empty() ? ", protected " : ", ") + grouped(n) + " " + what;
  };
  add(stats.protected_spans, "in spans");
  add(stats.protected_phrases, "in phrases");
  add(stats.protected_special, "special");
  add(stats.protected_domain, "of the domain");
  add(stats.protected_dropped, "given up");
  return text;
}

// 0.95F as 0.95 and not as the double next to it.
double as_written(float value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", static_cast<double>(value));
  return std::strtod(text, nullptr);
}

nlohmann::ordered_json sampling_json(const RunOutcome& outcome) {
  const SamplerOptions& s = outcome.sampler;
  return {{"preset", outcome.preset},
          {"temperature", as_written(s.temperature)},
          {"top_k", s.top_k},
          {"top_p", as_written(s.top_p)},
          {"min_p", as_written(s.min_p)},
          {"repeat_penalty", as_written(s.repeat_penalty)},
          {"repeat_last_n", s.repeat_last_n},
          {"length_penalty", as_written(s.length_penalty)}};
}

double rate(int64_t tokens, double seconds) { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0; }

}  // namespace

int64_t peak_rss_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:"))
      return std::strtoll(line.c_str() + 6, nullptr, 10) * 1024;
  }
  struct rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<int64_t>(usage.ru_maxrss) * 1024;
}

std::string stats_json(const Stats& stats, const RunOutcome& outcome, int64_t peak_rss,
                       const std::vector<LayerStats>& layers) {
  const nlohmann::ordered_json json = {
      {"prompt_tokens", stats.prompt_tokens},
      {"generated_tokens", outcome.generated_tokens},
      {"prefill_tok_s", rate(stats.prompt_tokens, stats.prefill_seconds)},
      // The last token of an answer is printed but not computed on: the rate is of those that were.
      {"decode_tok_s", rate(stats.generated_tokens, stats.decode_seconds)},
      {"kv_live_bytes", stats.kv_live_bytes},
      {"kv_peak_bytes", stats.kv_peak_bytes},
      {"kv_full_bytes", stats.kv_full_bytes},
      {"kv_budget_bytes", stats.kv_budget_bytes},
      {"keep", stats.keep},
      {"evicted_rows", stats.evicted_rows},
      {"discarded_rows", stats.discarded_rows},
      {"gate_threshold", stats.gate_threshold},
      {"policy", stats.policy},
      {"policy_ms", stats.policy_ms},
      {"peak_rss_bytes", peak_rss},
      {"finish_reason", outcome.finish_reason},
      {"fill", stats.fill},
      {"sequential", stats.sequential},
      {"kv_rows", stats.kv_rows},
      {"plan", stats.plan},
      {"evictions", stats.evictions},
      {"policy_fallbacks", stats.policy_fallbacks},
      {"policy_fallback_rounds", stats.policy_fallback_rounds},
      {"decode_p50_ms", stats.decode_p50_ms},
      {"decode_p99_ms", stats.decode_p99_ms},
      {"decode_max_ms", stats.decode_max_ms},
      {"budget_share", stats.budget_share},
      {"difficulty", stats.difficulty},
      {"anchor_recomputations", stats.anchor_recomputations},
      {"anchor_drift", stats.anchor_drift},
      {"anchor_drift_max", stats.anchor_drift_max},
      {"seed", outcome.sampler.seed},
      {"sampling", sampling_json(outcome)},
      {"session_tokens", outcome.session_tokens},
      {"protected_tokens",
       {{"spans", stats.protected_spans},
        {"phrases", stats.protected_phrases},
        {"special", stats.protected_special},
        {"domain", stats.protected_domain},
        {"dropped", stats.protected_dropped}}},
      {"layers", layers_json(layers)},
  };
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string kv_map_json(const KvMap& map) {
  nlohmann::ordered_json json = {{"n_tokens", map.n_tokens}, {"layers", map.layers}};
  constexpr std::array kNames = {"nothing", "spans", "phrases", "special", "domain"};
  for (size_t by = 1; !map.protected_by.empty() && by < kNames.size(); ++by) {
    nlohmann::ordered_json& positions = json["protected"][kNames[by]] = nlohmann::ordered_json::array();
    for (size_t i = 0; i < map.protected_by.size(); ++i) {
      if (map.protected_by[i] == static_cast<ProtectedBy>(by))
        positions.push_back(i);
    }
  }
  return json.dump() + "\n";
}

std::string kv_line(const Stats& stats) {
  std::string line =
      "KV " + format_bytes(stats.kv_live_bytes) + " live, " + format_bytes(stats.kv_peak_bytes) + " peak";
  if (stats.kv_budget_bytes > 0)
    line += " of " + format_bytes(stats.kv_budget_bytes);
  line += ", " + format_bytes(stats.kv_full_bytes) + " full, kept " + format_percent(stats.keep);
  if (stats.budget_share < 1)
    line += ", " + format_percent(stats.budget_share) + " of the budget in use by difficulty";
  if (stats.policy_fallbacks > 0)
    line +=
        ", " + grouped(stats.policy_fallbacks) + " of " + grouped(stats.evictions) + " evictions over the time limit";
  return line + protected_text(stats);
}

std::string end_line(const Stats& stats, const RunOutcome& outcome) {
  return grouped(stats.prompt_tokens) + " prompt tokens at " +
         format_real(rate(stats.prompt_tokens, stats.prefill_seconds), 1) + " tok/s, " +
         grouped(outcome.generated_tokens) + " generated at " +
         format_real(rate(stats.generated_tokens, stats.decode_seconds), 1) + " tok/s (" + outcome.finish_reason +
         "); " + kv_line(stats);
}

Status check_reports(const Settings& settings) {
  if (Status status = check_writable(settings.stats); !status)
    return status;
  if (Status status = check_writable(settings.explain_json); !status)
    return status;
  if (const Result<ExplainOptions> options = explain_options(settings); !options)
    return options.error();
  return check_writable(settings.kv_map);
}

Status write_reports(const Settings& settings, const Session& session, const Stats& stats, const RunOutcome& outcome) {
  if (!settings.stats.empty()) {
    const std::string json = stats_json(stats, outcome, peak_rss_bytes(), session.layer_stats());
    if (Status status = write_file(settings.stats, json); !status)
      return status;
  }
  if (settings.kv_map.empty())
    return {};
  return write_file(settings.kv_map, kv_map_json(session.kv_map()));
}

}  // namespace kedge::cli
