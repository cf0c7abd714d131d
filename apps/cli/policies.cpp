// kedge policies: the registry of eviction methods.
#include <nlohmann/json.hpp>

#include "console.h"
#include "engine.h"
#include "kedge/policy.h"
#include "kedge/protection.h"
#include "nearest.h"
#include "prompt.h"
#include "verbs.h"

namespace kedge::cli {
namespace {

using Json = nlohmann::ordered_json;

Json as_json(const PolicyOption& option) {
  return {{"name", option.name},
          {"kind", option.kind},
          {"default", option.fallback},
          {"range", option.range},
          {"help", option.help}};
}

Json as_json(const PolicyNeeds& needs) {
  return {{"window_queries", needs.window_queries},
          {"values", needs.values},
          {"attention_sum", needs.attention_sum},
          {"echo", needs.echo},
          {"query_moments", needs.query_moments},
          {"second_pass", needs.second_pass},
          {"running_anchor", needs.running_anchor},
          {"output_weights", needs.output_weights},
          {"tokens", needs.tokens}};
}

Json as_json(const PolicyMethod& method) {
  Json options = Json::array();
  for (const PolicyOption& option : method.options)
    options.push_back(as_json(option));
  Json json = {{"role", method.role},     {"name", method.name}, {"summary", method.summary},
               {"source", method.source}, {"options", options},  {"aliases", method.aliases}};
  if (method.role == "schedule") {
    Json properties = Json::object();
    for (const auto& [name, value] : method.properties)
      properties[name] = value;
    json["properties"] = properties;
    return json;
  }
  json["cost"] = method.cost;
  json["needs"] = as_json(method.needs);
  json["needs_text"] = needs_text(method.needs);
  if (method.role == "allocator") {
    json["layers"] = method.layers;
    return json;
  }
  json["defaults"] = method.defaults;
  json["example"] = {{"policy", method.example.policy}, {"score", method.example.score}, {"kept", method.example.kept}};
  return json;
}

std::string padded(std::string text, size_t width) {
  text.resize(std::max(width, text.size() + 1), ' ');
  return text;
}

std::string listing(const std::vector<PolicyMethod>& methods) {
  std::string text;
  std::string role;
  for (const PolicyMethod& method : methods) {
    if (method.role != role)
      text += (role.empty() ? "" : "\n") + method.role + "s\n";
    role = method.role;
    text += "  " + padded(method.name, 16) + method.summary + "\n";
    std::string options;
    for (const PolicyOption& option : method.options) {
      options += (options.empty() ? "" : ",") + option.name + "=" + option.fallback;
    }
    if (!options.empty())
      text += padded("", 18) + options + "\n";
  }
  return text +
         "\nA policy is SCORER[:k=v,...][/ALLOCATOR[:k=v,...]][/SCHEDULE[:k=v,...]]; `kedge policies NAME` tells more.";
}

std::string example_lines(const PolicyExample& example) {
  if (example.score.empty())
    return "";
  std::string rows;
  std::string scores;
  for (size_t row = 0; row < example.score.size(); ++row) {
    rows += padded("row " + std::to_string(row), 9);
    scores += padded(format_real(example.score[row], 4), 9);
  }
  std::string kept;
  for (const int row : example.kept)
    kept += " " + std::to_string(row);
  return "on the six rows of docs/policies/README.md, " + example.policy + " says\n  " + rows + "\n  " + scores +
         "\n  kept in the order" + kept + "\n";
}

std::string page(const PolicyMethod& method) {
  std::string text = method.name + " (" + method.role + "): " + method.summary + "\n";
  const auto line = [&text](const std::string& what, const std::string& value) {
    if (!value.empty())
      text += what + ": " + value + "\n";
  };
  line("source", method.source);
  std::string aliases;
  for (const std::string& alias : method.aliases)
    aliases += (aliases.empty() ? "" : ", ") + alias;
  line("also called", aliases);
  line("the bare name means", method.defaults);
  if (method.role != "schedule") {
    line("work of one eviction of a head with n rows", method.cost);
    line("needs", needs_text(method.needs));
  }
  line("layers of a budget", method.layers);
  for (const auto& [name, value] : method.properties)
    line(name, value);
  for (const PolicyOption& option : method.options) {
    text += "  " + padded(option.name + "=" + option.fallback, 24) + option.help + " (" + option.kind +
            (option.range.empty() ? "" : ", " + option.range) + ")\n";
  }
  text += example_lines(method.example);
  text.pop_back();
  return text;
}

Result<std::vector<PolicyMethod>> chosen(const std::vector<std::string>& names) {
  std::vector<PolicyMethod> all = list_policies();
  if (names.empty())
    return all;
  if (names.size() > 1) {
    return Error{.code = ErrorCode::usage, .message = "unexpected argument '" + names[1] + "'"};
  }
  std::vector<PolicyMethod> found;
  std::vector<std::string> known;
  for (const PolicyMethod& method : all) {
    known.push_back(method.name);
    if (method.name == names.front())
      found.push_back(method);
  }
  if (!found.empty())
    return found;
  return Error{
      .code = ErrorCode::usage,
      .message = "no policy is called '" + names.front() + "', the nearest is '" + nearest(names.front(), known) + "'"};
}

// --domains: all of them, or the definition of one.
Result<std::string> domains_text(const Settings& settings) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  std::string text = "domains\n";
  std::vector<std::string> known;
  for (const DomainInfo& domain : list_domains()) {
    known.push_back(domain.name);
    text += "  " + padded(domain.name, 16) + domain.summary + "\n";
    if (!settings.positional.empty() && settings.positional.front() != domain.name)
      continue;
    json.push_back({{"name", domain.name}, {"summary", domain.summary}, {"definition", domain.definition}});
  }
  if (json.empty()) {
    return Error{.code = ErrorCode::usage,
                 .message = "no domain is called '" + settings.positional.front() + "', the nearest is '" +
                            nearest(settings.positional.front(), known) + "'"};
  }
  if (settings.json)
    return json.dump(2) + "\n";
  if (!settings.positional.empty())
    return json.front()["definition"].get<std::string>();
  return text + "\n`--kv-domain NAME` chooses one; `kedge policies --domains NAME` prints its definition.\n";
}

}  // namespace

std::vector<VerbList> policies_lists() {
  VerbList list{.title = "Domains", .entries = {}};
  for (const DomainInfo& domain : list_domains())
    list.entries.push_back(
        {.name = domain.name, .summary = domain.summary, .source = "data/domains/" + domain.name + ".toml"});
  return {list};
}

int policies_verb(const Settings& settings) {
  if (settings.domains) {
    const Result<std::string> domains = domains_text(settings);
    if (!domains.ok())
      return report(domains.error());
    const Status status = print_text(domains.value());
    return status.ok() ? 0 : report(status.error());
  }
  const Result<std::vector<PolicyMethod>> methods = chosen(settings.positional);
  if (!methods.ok())
    return report(methods.error());
  std::string text;
  if (settings.json) {
    Json json = Json::array();
    for (const PolicyMethod& method : methods.value())
      json.push_back(as_json(method));
    text = json.dump(2);
  } else if (settings.positional.empty()) {
    text = listing(methods.value());
  } else {
    for (const PolicyMethod& method : methods.value())
      text += (text.empty() ? "" : "\n\n") + page(method);
  }
  const Status status = print_text(text + "\n");
  return status.ok() ? 0 : report(status.error());
}

}  // namespace kedge::cli
