// kedge policies: the registry of eviction methods.
#include <nlohmann/json.hpp>

#include "console.h"
#include "kedge/policy.h"
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

}  // namespace

int policies_verb(const Settings& settings) {
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
