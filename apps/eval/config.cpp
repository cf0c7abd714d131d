#include "eval/config.h"

#include <charconv>
#include <cmath>
#include <set>

#include "cli/nearest.h"
#include "kedge/policy.h"

namespace kedge::eval {
namespace {

Error usage(std::string message) { return {.code = ErrorCode::usage, .message = std::move(message)}; }

std::vector<std::string> split(std::string_view list, std::string_view separators) {
  std::vector<std::string> pieces;
  while (!list.empty()) {
    const size_t end = list.find_first_of(separators);
    if (end != 0)
      pieces.emplace_back(list.substr(0, end));
    list = end == std::string_view::npos ? std::string_view() : list.substr(end + 1);
  }
  return pieces;
}

// A piece that gives an option to the policy before it.
bool continues(std::string_view piece) {
  const size_t equals = piece.find('=');
  return equals != std::string_view::npos && piece.find_first_of(":/") > equals;
}

}  // namespace

Result<std::vector<PolicyChoice>> parse_policies(std::string_view list) {
  std::vector<std::string> names;
  for (const std::string& piece : split(list, ", \t\n;")) {
    if (continues(piece) && !names.empty())
      names.back() += "," + piece;
    else
      names.push_back(piece);
  }
  if (names.empty())
    return usage("--kv-policy: no policy named");
  std::vector<PolicyChoice> policies;
  std::set<std::string> seen;
  for (const std::string& name : names) {
    Result<std::string> text = resolve_policy(name);
    if (!text)
      return text.error();
    if (seen.insert(*text).second)
      policies.push_back({.name = name, .text = *text});
  }
  return policies;
}

Result<std::vector<Budget>> parse_budgets(std::string_view list) {
  std::vector<Budget> budgets;
  std::set<std::string> seen;
  for (const std::string& piece : split(list, ", ;")) {
    Result<Budget> budget = parse_budget(piece);
    if (!budget)
      return budget.error();
    if (budget->kind == Budget::Kind::unlimited)
      return usage("--kv-budget: '" + piece +
                   "' is no budget; the full cache is the policy none, which is always there");
    if (seen.insert(piece).second)
      budgets.push_back(*budget);
  }
  if (budgets.empty())
    return usage("--kv-budget: no budget named");
  return budgets;
}

Result<std::vector<int64_t>> parse_lengths(std::string_view list, std::string_view flag) {
  std::vector<int64_t> lengths;
  for (std::string piece : split(list, ", ;")) {
    int64_t scale = 1;
    std::string_view digits = piece;
    if (digits.ends_with('k') || digits.ends_with('K')) {
      scale = 1024;
      digits.remove_suffix(1);
    }
    int64_t value = 0;
    const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || stop != digits.data() + digits.size() || value < 1 ||
        value > (int64_t{1} << 30) / scale)
      return usage(std::string(flag) + ": '" + piece + "' is not a number of tokens from 1 to 1048576k");
    if (std::ranges::find(lengths, value * scale) == lengths.end())
      lengths.push_back(value * scale);
  }
  if (lengths.empty())
    return usage(std::string(flag) + ": no length named");
  return lengths;
}

Result<std::vector<double>> parse_depths(std::string_view list) {
  std::vector<double> depths;
  for (const std::string& piece : split(list, ", ;")) {
    std::string_view digits = piece;
    const bool percent = digits.ends_with('%');
    if (percent)
      digits.remove_suffix(1);
    double value = -1;
    const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    value = percent ? value / 100 : value;
    if (error != std::errc() || stop != digits.data() + digits.size() || !(value >= 0 && value <= 1))
      return usage("--depths: '" + piece + "' is not a place in the text, 0 to 1 or 0% to 100%");
    if (std::ranges::find(depths, value) == depths.end())
      depths.push_back(value);
  }
  if (depths.empty())
    return usage("--depths: no depth named");
  return depths;
}

Json to_json(const Config& config, const ModelInfo& model) {
  Json json = {{"schema", "kedge-eval-1"}};
  json["model"] = {{"path", model.path},
                   {"sha256", config.model_sha256},
                   {"name", model.name},
                   {"architecture", model.architecture},
                   {"weight_type", model.weight_type},
                   {"n_layers", model.n_layers},
                   {"n_kv_heads", model.n_kv_heads},
                   {"head_dim", model.head_dim}};
  if (!model.adapter.empty())
    json["model"]["adapter"] = model.adapter;
  if (!model.gate.empty())
    json["model"]["gate"] = model.gate;
  json["tasks"] = Json::array();
  for (const TaskChoice& task : config.tasks)
    json["tasks"].push_back(task.text);
  json["file"] = config.file;
  json["file_sha256"] = config.file_sha256;
  json["policies"] = Json::array();
  if (config.with_none)
    json["policies"].push_back({{"name", "none"}, {"text", "none"}});
  for (const PolicyChoice& policy : config.policies)
    json["policies"].push_back({{"name", policy.name}, {"text", policy.text}});
  json["budgets"] = Json::array();
  for (const Budget& budget : config.budgets)
    json["budgets"].push_back(budget.text);
  json["lengths"] = config.lengths;
  json["depths"] = config.depths;
  json["samples"] = config.samples;
  json["continuation"] = config.continuation;
  json["seed"] = config.seed;
  json["question_aware"] = config.question_aware;
  json["decode_evicts"] = config.decode_evicts;
  json["chat"] = config.chat;
  json["skip_bad"] = config.skip_bad;
  json["cache_type_k"] = config.cache_type_k;
  json["cache_type_v"] = config.cache_type_v;
  json["f16_window"] = config.f16_window;
  json["reference"] = config.reference;
  json["noise_windows"] = config.noise_windows;
  if (!config.protect.is_null())
    json["protect"] = config.protect;
  return json;
}

std::string first_difference(const Json& a, const Json& b) {
  for (const auto& [key, value] : a.items()) {
    if (key == "file")
      continue;
    Json left = value;
    Json right = b.contains(key) ? b.at(key) : Json();
    if (key == "model") {
      left.erase("path");
      if (right.is_object())
        right.erase("path");
    }
    if (left != right)
      return key + " " + to_line(left) + " against " + to_line(right);
  }
  if (b.contains("protect") && !a.contains("protect"))
    return "protect null against " + to_line(b.at("protect"));
  return "";
}

}  // namespace kedge::eval
