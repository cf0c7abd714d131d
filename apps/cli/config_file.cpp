// The TOML config file: flat keys, the long names of the options table.
#include <cstdio>
#include <vector>

#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

#include "nearest.h"
#include "options.h"
#include "text_input.h"

namespace kedge::cli {
namespace {

const OptionSpec* find_key(const std::string& key) {
  for (const OptionSpec& row : option_table()) {
    if (row.key() == key && key != "config" && key != "help")
      return &row;
  }
  return nullptr;
}

std::string nearest_key(const std::string& key) {
  std::vector<std::string> keys;
  for (const OptionSpec& row : option_table()) {
    if (row.key() != "config" && row.key() != "help")
      keys.push_back(row.key());
  }
  return nearest(key, keys);
}

// A scalar as the user would have written it on the command line; nothing for tables, lists and dates.
std::optional<std::string> scalar_text(const toml::node& node) {
  if (const auto* text = node.as_string())
    return text->get();
  if (const auto* number = node.as_integer())
    return std::to_string(number->get());
  if (const auto* flag = node.as_boolean())
    return flag->get() ? "true" : "false";
  if (const auto* real = node.as_floating_point()) {
    char buffer[40];
    std::snprintf(buffer, sizeof buffer, "%.9g", real->get());
    return buffer;
  }
  return std::nullopt;
}

}  // namespace

Result<std::map<std::string, std::string>> parse_config(std::string_view toml, const std::string& path) {
  const toml::parse_result parsed = toml::parse(toml, path);
  const auto usage = [&path](const toml::source_region& where, const std::string& what) {
    return Error{.code = ErrorCode::usage,
                 .message = "config file " + path + ", line " + std::to_string(where.begin.line) + ": " + what};
  };
  if (!parsed)
    return usage(parsed.error().source(), std::string(parsed.error().description()));

  std::map<std::string, std::string> values;
  for (const auto& [name, node] : parsed.table()) {
    const std::string key(name.str());
    if (find_key(key) == nullptr) {
      return usage(node.source(), "unknown key '" + key + "', the nearest is '" + nearest_key(key) + "'");
    }
    const std::optional<std::string> text = scalar_text(node);
    if (!text)
      return usage(node.source(), "'" + key + "' must be a string, a number or true/false");
    values[key] = *text;
  }
  return values;
}

Result<std::map<std::string, std::string>> read_config_file(const std::string& path) {
  Result<std::string> text = read_text(path);
  if (!text)
    return Error{.code = ErrorCode::usage, .message = "config file: " + text.error().message};
  return parse_config(*text, path);
}

}  // namespace kedge::cli
