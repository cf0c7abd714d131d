#include "eval/settings.h"

#include <sys/stat.h>

#include <algorithm>

#include "cli/protect.h"

namespace kedge::eval {
namespace {

Error usage(std::string message) { return {.code = ErrorCode::usage, .message = std::move(message)}; }

// "needle:keys=4,values=2,kld": commas part tasks; a piece `k=v` without ':' before its '=' belongs to the task before.
std::vector<std::string> split_tasks(const std::string& list) {
  std::vector<std::string> names;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const std::string piece = list.substr(begin, end - begin);
    const size_t equals = piece.find('=');
    if (equals != std::string::npos && piece.find(':') > equals && !names.empty())
      names.back() += "," + piece;
    else if (!piece.empty())
      names.push_back(piece);
    begin = end + 1;
  }
  return names;
}

void add_control(std::vector<PolicyChoice>& policies, const std::string& name, const std::string& text) {
  for (const PolicyChoice& policy : policies) {
    if (policy.text == text)
      return;
  }
  policies.push_back({.name = name, .text = text});
}

Status take_tasks(const cli::Settings& settings, Config& config) {
  for (const std::string& argument : settings.positional) {
    for (const std::string& name : split_tasks(argument)) {
      Result<TaskChoice> task = parse_task(name);
      if (!task)
        return task.error();
      const auto same = [&task](const TaskChoice& other) { return other.text == task->text; };
      if (std::ranges::none_of(config.tasks, same))
        config.tasks.push_back(*std::move(task));
    }
  }
  if (!config.tasks.empty())
    return {};
  std::string known;
  for (const TaskInfo& info : tasks())
    known += (known.empty() ? "" : ", ") + info.name;
  return usage("no task named; there are " + known);
}

Status take_policies(const cli::Settings& settings, Config& config) {
  Result<std::vector<PolicyChoice>> policies = parse_policies(settings.eval_policies);
  if (!policies)
    return policies.error();
  config.policies = *std::move(policies);
  const auto named_none = [](const PolicyChoice& policy) { return policy.text == "none" || policy.name == "none"; };
  config.with_none = !settings.no_controls || std::ranges::any_of(config.policies, named_none);
  std::erase_if(config.policies, named_none);
  if (settings.no_controls || config.policies.empty())
    return {};
  for (const char* name : {"recent", "random"}) {
    Result<std::vector<PolicyChoice>> control = parse_policies(name);
    if (!control)
      return control.error();
    add_control(config.policies, name, control->front().text);
  }
  return {};
}

// Files by what is in them. Paths may change, a run goes on only with the same lists.
Json protect_json(const cli::Settings& settings, const Protection& protection) {
  if (protection.empty() && !settings.kv_pin_system)
    return Json();
  Json phrases = Json::array();
  for (const ProtectedPhrase& phrase : protection.phrases)
    phrases.push_back((phrase.match_case ? "case: " : "") + phrase.text);
  return {{"phrases", phrases},
          {"domain", protection.domain},
          {"pin_system", settings.kv_pin_system},
          {"special_quota", protection.special_quota},
          {"overflow", settings.kv_protect_overflow}};
}

}  // namespace

bool match_asked(const cli::Settings& settings) { return settings.match_quality > 0 || settings.match_kld > 0; }

MatchTarget match_target(const cli::Settings& settings) {
  return {.quality = settings.match_quality, .kld = settings.match_kld};
}

cli::Settings base_settings(const cli::Settings& settings) {
  cli::Settings base = settings;
  base.kv_budget.clear();
  base.kv_policy.clear();
  return base;
}

Result<Config> config_of(const cli::Settings& settings) {
  Config config;
  if (Status status = take_tasks(settings, config); !status)
    return status.error();
  if (Status status = take_policies(settings, config); !status)
    return status.error();
  if (settings.match_quality > 0 && settings.match_kld > 0)
    return usage("--match-quality and --match-kld are two answers to one question: give one");
  if (!match_asked(settings)) {
    Result<std::vector<Budget>> budgets = parse_budgets(settings.eval_budgets);
    if (!budgets)
      return budgets.error();
    config.budgets = *std::move(budgets);
  }
  Result<std::vector<int64_t>> lengths = parse_lengths(settings.lengths, "--lengths");
  if (!lengths)
    return lengths.error();
  config.lengths = *std::move(lengths);
  Result<std::vector<double>> depths = parse_depths(settings.depths);
  if (!depths)
    return depths.error();
  config.depths = *std::move(depths);
  config.file = settings.file.value_or("");
  if (config.file == "-")
    return usage("-f: standard input cannot be read twice; give a file");
  config.samples = settings.eval_samples;
  config.continuation = settings.continuation;
  config.seed = static_cast<uint64_t>(std::max<int64_t>(0, settings.seed.value_or(0)));
  config.question_aware = !settings.question_agnostic;
  config.decode_evicts = settings.decode_evicts;
  config.chat = settings.chat;
  config.skip_bad = settings.skip_bad;
  config.cache_type_k = settings.cache_type_k;
  config.cache_type_v = settings.cache_type_v;
  config.f16_window = settings.kv_f16_window;
  Result<Protection> protection = cli::protection_of(settings);
  if (!protection)
    return protection.error();
  config.protect = protect_json(settings, *protection);
  config.pin_system = settings.kv_pin_system;
  config.reference = settings.reference == "self" ? "" : settings.reference;
  config.noise_windows = settings.noise_windows;
  return config;
}

}  // namespace kedge::eval
