#include "eviction/registry.h"

#include <algorithm>

#include "eviction/options.h"

namespace kedge::eviction {
namespace {

constexpr size_t kQuotedBytes = 64;

std::vector<Method> sorted(std::vector<Method> methods) {
  std::sort(methods.begin(), methods.end(), [](const Method& a, const Method& b) { return a.info.name < b.info.name; });
  return methods;
}

std::vector<Method> with_protection(std::vector<Method> methods) {
  for (Method& method : methods) {
    method.info.options.push_back(rows_option("recent", method.default_recent,
                                              "newest rows that are always kept: rows, or a share of the budget"));
    method.info.options.push_back(rows_option("sinks", method.default_sinks,
                                              "first positions that are always kept: rows, or a share of the budget"));
  }
  return methods;
}

size_t levenshtein(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j)
    row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, changed});
    }
  }
  return row[b.size()];
}

}  // namespace

const std::vector<Method>& scorers() {
  static const std::vector<Method> methods = sorted(with_protection(generated_scorers()));
  return methods;
}

const std::vector<Method>& allocators() {
  static const std::vector<Method> methods = sorted(generated_allocators());
  return methods;
}

const std::vector<Method>& schedules() {
  static const std::vector<Method> methods = sorted(generated_schedules());
  return methods;
}

const Method* find_method(const std::vector<Method>& methods, std::string_view name) {
  for (const Method& method : methods) {
    if (method.info.name == name)
      return &method;
    if (std::find(method.aliases.begin(), method.aliases.end(), name) != method.aliases.end())
      return &method;
  }
  return nullptr;
}

std::string nearest_name(std::string_view name, std::span<const std::string> candidates) {
  std::string best;
  size_t best_distance = SIZE_MAX;
  for (const std::string& candidate : candidates) {
    const size_t distance = levenshtein(name.substr(0, kQuotedBytes), candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text.substr(0, kQuotedBytes))
    out += (c >= ' ' && c <= '~') ? c : '?';
  if (text.size() > kQuotedBytes)
    out += "...";
  return out + "'";
}

std::string joined(std::span<const std::string> words, std::string_view separator) {
  std::string out;
  for (const std::string& word : words) {
    if (!out.empty())
      out += separator;
    out += word;
  }
  return out;
}

}  // namespace kedge::eviction
