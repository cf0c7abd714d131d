#include "engine.h"

#include <cstdio>

#include "explain.h"
#include "kedge/policy.h"
#include "protect.h"

namespace kedge::cli {

Result<SessionOptions> session_options(const Settings& settings) {
  const auto usage = [](std::string message) { return Error{.code = ErrorCode::usage, .message = std::move(message)}; };
  SessionOptions options;
  if (!settings.kv_budget.empty()) {
    Result<Budget> budget = parse_budget(settings.kv_budget);
    if (!budget)
      return budget.error();
    options.budget = *budget;
  }
  if (!settings.kv_policy.empty()) {
    if (Result<std::string> resolved = resolve_policy(settings.kv_policy); !resolved)
      return resolved.error();
  }
  options.policy = settings.kv_policy;
  options.sinks = settings.kv_sinks;
  options.recent = settings.kv_recent;
  if (Result<std::string> mode = resolve_gate_mode(settings.gate_mode); !mode)
    return mode.error();
  options.gate_mode = settings.gate_mode;
  options.overflow = settings.kv_overflow == "error"      ? Overflow::error
                     : settings.kv_overflow == "truncate" ? Overflow::truncate
                                                          : Overflow::evict;
  options.order = settings.prefill_order == "layer-major" ? PrefillOrder::layer_major
                  : settings.prefill_order == "chunked"   ? PrefillOrder::chunked
                                                          : PrefillOrder::automatic;
  Result<Protection> protection = protection_of(settings);
  if (!protection)
    return protection.error();
  options.protect = *std::move(protection);
  options.policy_time_limit_ms = settings.kv_time_limit;
  options.n_ctx = settings.ctx_size;
  options.n_batch = settings.batch_size;
  options.n_ubatch = settings.ubatch_size;
  options.cache_type_k = settings.cache_type_k;
  options.cache_type_v = settings.cache_type_v;
  if (settings.kv_f16_window % 16 != 0) {
    return usage("--kv-f16-window is " + std::to_string(settings.kv_f16_window) +
                 "; it must be a multiple of 16, or 0");
  }
  options.f16_window = settings.kv_f16_window;
  options.explain = explain_asked(settings);
  return options;
}

Result<std::unique_ptr<Model>> load_model(const Settings& settings, const std::string& path) {
  if (path.empty()) {
    return Error{.code = ErrorCode::usage, .message = "no model: give -m FILE or set KEDGE_MODEL"};
  }
  if (settings.lora.empty() && settings.lora_scale != 1)
    return Error{.code = ErrorCode::usage, .message = "--lora-scale: there is no --lora FILE whose scale it would be"};
  return Model::load({.path = path,
                      .gate = settings.gate,
                      .lora = settings.lora,
                      .lora_scale = settings.lora_scale,
                      .n_threads = settings.threads < 0 ? 0 : settings.threads,
                      .prompt_weights = settings.prompt_weights,
                      .mmap = settings.mmap,
                      .kernels = settings.kernels});
}

std::string cache_types(const SessionOptions& options) {
  return options.cache_type_k == options.cache_type_v ? options.cache_type_k
                                                      : options.cache_type_k + " K, " + options.cache_type_v + " V";
}

Result<std::string> describe(const Model& model, const SessionOptions& options) {
  const ModelInfo& info = model.info();
  Result<BudgetMeaning> meaning = explain_budget(model, options);
  if (!meaning)
    return meaning.error();
  std::string line = info.name + " (" + info.architecture + ", " + info.weight_type + ", " +
                     format_bytes(info.weight_bytes) + "), " + grouped(meaning->token_bytes) + " KV bytes a token (" +
                     cache_types(options) + ")";
  if (!info.adapter.empty())
    line += "; adapter " + info.adapter;
  if (!info.gate.empty())
    line += "; gate " + info.gate;
  if (options.budget.kind == Budget::Kind::unlimited) {
    line += "; no budget";
  } else {
    const int64_t tokens = info.kv_bytes_per_token > 0 ? meaning->budget_bytes / info.kv_bytes_per_token : 0;
    line += "; budget " + format_bytes(meaning->budget_bytes) + " = " + grouped(tokens) + " tokens at full precision";
  }
  line += "; policy " + meaning->policy;
  if (!meaning->plan.empty())
    line += "; " + meaning->plan;
  return line;
}

std::string report_row(const std::string& name, const std::string& value) {
  std::string label = "  " + name;
  label.resize(20, ' ');
  return label + value + "\n";
}

std::string grouped(int64_t number) {
  std::string digits = std::to_string(number < 0 ? -number : number);
  for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<size_t>(at), ",");
  return number < 0 ? "-" + digits : digits;
}

std::string format_real(double value, int decimals) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%.*f", decimals, value);
  return buffer;
}

std::string format_percent(double share) { return format_real(100 * share, 1) + "%"; }

}  // namespace kedge::cli
