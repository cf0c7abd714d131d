// kedge policies: the registry of eviction methods.
#include <nlohmann/json.hpp>

#include "console.h"
#include "kedge/policy.h"
#include "kedge/protection.h"
#include "nearest.h"
#include "prompt.h"
#include "verbs.h"

namespace kedge::cli {
namespace {

nlohmann::ordered_json as_json(const PolicyMethod& method) {
  nlohmann::ordered_json options = nlohmann::ordered_json::array();
  for (const PolicyOption& option : method.options) {
    options.push_back({{"name", option.name},
                       {"kind", option.kind},
                       {"default", option.fallback},
                       {"range", option.range},
                       {"help", option.help}});
  }
  nlohmann::ordered_json json = {{"role", method.role},
                                 {"name", method.name},
                                 {"summary", method.summary},
                                 {"source", method.source},
                                 {"options", options}};
  if (!method.defaults.empty())
    json["defaults"] = method.defaults;
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

std::string page(const PolicyMethod& method) {
  std::string text = method.name + " (" + method.role + "): " + method.summary + "\n";
  if (!method.source.empty())
    text += "source: " + method.source + "\n";
  if (!method.defaults.empty())
    text += "the bare name means: " + method.defaults + "\n";
  for (const PolicyOption& option : method.options) {
    text += "  " + padded(option.name + "=" + option.fallback, 24) + option.help + " (" + option.kind +
            (option.range.empty() ? "" : ", " + option.range) + ")\n";
  }
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
    nlohmann::ordered_json json = nlohmann::ordered_json::array();
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
