// kedge inspect: what a model is, and what a budget means for a request to it; or what a session file holds.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "console.h"
#include "engine.h"
#include "inspect_gate.h"
#include "inspect_lora.h"
#include "inspect_session.h"
#include "kedge/policy.h"
#include "prompt.h"
#include "verbs.h"

namespace kedge::cli {
namespace {

struct Request {
  int64_t prompt_tokens = 0;
  int64_t predict = 0;
  BudgetMeaning meaning;
  SessionOptions types;  // as asked
};

Result<Request> explain(const Model& model, const Settings& settings, SessionOptions options) {
  Request request;
  request.predict = settings.predict;  // -1: open-ended
  const int64_t trained = model.info().n_ctx_train - std::max<int64_t>(0, request.predict);
  request.prompt_tokens = settings.prompt_tokens > 0 ? settings.prompt_tokens : trained < 1 ? 1 : trained;
  options.expected_prompt = request.prompt_tokens;
  options.expected_generated = request.predict;
  Result<BudgetMeaning> meaning = explain_budget(model, options);
  if (!meaning)
    return meaning.error();
  request.meaning = *std::move(meaning);
  request.types = options;
  return request;
}

std::string as_json(const ModelInfo& info, const Request& request) {
  const nlohmann::ordered_json json = {
      {"path", info.path},
      {"name", info.name},
      {"architecture", info.architecture},
      {"weight_type", info.weight_type},
      {"adapter", info.adapter},
      {"n_layers", info.n_layers},
      {"n_heads", info.n_heads},
      {"n_kv_heads", info.n_kv_heads},
      {"head_dim", info.head_dim},
      {"n_embd", info.n_embd},
      {"n_vocab", info.n_vocab},
      {"n_ctx_train", info.n_ctx_train},
      {"n_params", info.n_params},
      {"weight_bytes", info.weight_bytes},
      {"kv_bytes_per_token", info.kv_bytes_per_token},
      {"kernels", info.kernels},
      {"prompt_weights", info.prompt_weights},
      {"mmap", info.mmap},
      {"n_threads", info.n_threads},
      {"request",
       {{"prompt_tokens", request.prompt_tokens},
        {"predict", request.predict},
        {"policy", request.meaning.policy},
        {"kv_budget_bytes", request.meaning.budget_bytes},
        {"kv_full_bytes", request.meaning.full_bytes},
        {"cache_type_k", request.types.cache_type_k},
        {"cache_type_v", request.types.cache_type_v},
        {"kv_bytes_per_token", request.meaning.token_bytes},
        {"rows_per_head", request.meaning.rows_per_head},
        {"plan", request.meaning.plan}}},
  };
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string as_text(const ModelInfo& info, const Request& request) {
  std::string text = info.name + "\n";
  text += report_row("file", info.path);
  text += report_row("architecture", info.architecture + ", " + grouped(info.n_layers) + " layers, " +
                                         grouped(info.n_embd) + " wide, " + grouped(info.n_params) + " parameters");
  text += report_row("attention", grouped(info.n_heads) + " query heads, " + grouped(info.n_kv_heads) +
                                      " kv heads of " + grouped(info.head_dim));
  text += report_row("weights", info.weight_type + ", " + format_bytes(info.weight_bytes));
  if (!info.adapter.empty())
    text += report_row("adapter", info.adapter);
  text += report_row("vocabulary", grouped(info.n_vocab) + " tokens");
  text += report_row("trained context", grouped(info.n_ctx_train) + " tokens");
  text += report_row("KV per token", grouped(info.kv_bytes_per_token) + " bytes (f16)");
  text += report_row("runs with", info.kernels + " kernels, " + info.prompt_weights + " prompt weights, mmap " +
                                      info.mmap + ", " + std::to_string(info.n_threads) + " threads");
  text += "A request of " + grouped(request.prompt_tokens) + " prompt tokens and " +
          (request.predict < 0 ? "any number" : grouped(request.predict)) + " to generate\n";
  text += report_row("full cache", format_bytes(request.meaning.full_bytes) + " in f16");
  text += report_row("rows held as",
                     cache_types(request.types) + ", " + grouped(request.meaning.token_bytes) + " bytes per token");
  text += report_row("budget", format_bytes(request.meaning.budget_bytes));
  text += report_row("rows kept", format_real(request.meaning.rows_per_head, 1) + " per kv head on average");
  text += report_row("policy", request.meaning.policy);
  text += report_row("plan", request.meaning.plan);
  text.pop_back();
  return text;
}

Result<std::string> inspect(const Settings& settings) {
  if (settings.positional.size() > 1) {
    return Error{.code = ErrorCode::usage, .message = "unexpected argument '" + settings.positional[1] + "'"};
  }
  Result<SessionOptions> options = session_options(settings);
  if (!options)
    return options.error();
  const std::string path = settings.positional.empty() ? settings.model : settings.positional.front();
  if (is_session_file(path))
    return inspect_session(path, settings.json);
  if (is_gate_file(path))
    return inspect_gate(path, settings.json);
  if (is_lora_file(path))
    return inspect_lora(path, settings.json);
  Result<std::unique_ptr<Model>> model = load_model(settings, path);
  if (!model)
    return model.error();
  Result<Request> request = explain(**model, settings, *options);
  if (!request)
    return request.error();
  const ModelInfo& info = (*model)->info();
  return settings.json ? as_json(info, *request) : as_text(info, *request);
}

}  // namespace

int inspect_verb(const Settings& settings) {
  const Result<std::string> result = inspect(settings);
  if (!result.ok())
    return report(result.error());
  const Status status = print_text(result.value() + "\n");
  return status.ok() ? 0 : report(status.error());
}

}  // namespace kedge::cli
