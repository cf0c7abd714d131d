#include "kedge/budget.h"

#include <array>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace kedge {

namespace {

struct Unit {
  std::string_view name;
  Budget::Kind kind;
  double factor;
};

constexpr std::array<Unit, 8> kUnits = {{
    {"GiB", Budget::Kind::bytes, 1024.0 * 1024.0 * 1024.0},
    {"MiB", Budget::Kind::bytes, 1024.0 * 1024.0},
    {"KiB", Budget::Kind::bytes, 1024.0},
    {"GB", Budget::Kind::bytes, 1e9},
    {"MB", Budget::Kind::bytes, 1e6},
    {"tok", Budget::Kind::rows, 1.0},
    {"%", Budget::Kind::share, 0.01},
    {"B", Budget::Kind::bytes, 1.0},
}};

Error bad(std::string_view text, const std::string& why) {
  return {ErrorCode::usage,
          "--kv-budget '" + std::string(text) + "': " + why +
              "; write bytes (512MiB, 1.5GiB, 300000B), a share of the full cache (25%) or rows per kv head (2048tok)"};
}

bool same_unit(std::string_view a, std::string_view b) {
  if (a.size() != b.size())
    return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::tolower(static_cast<unsigned char>(a[i])) != std::tolower(static_cast<unsigned char>(b[i])))
      return false;
  }
  return true;
}

}  // namespace

Result<Budget> parse_budget(std::string_view text) {
  const std::string copy(text);
  if (same_unit(text, "unlimited"))
    return Budget{};
  char* end = nullptr;
  const double number = std::strtod(copy.c_str(), &end);
  if (end == copy.c_str() || !std::isfinite(number))
    return bad(text, "no number found");
  std::string_view unit(end);
  while (!unit.empty() && unit.front() == ' ')
    unit.remove_prefix(1);
  if (number < 0)
    return bad(text, "a budget cannot be negative");
  if (number == 0)
    return bad(text, "a budget of zero holds nothing");
  if (unit.empty())
    return bad(text, "the unit is missing");
  for (const Unit& u : kUnits) {
    if (!same_unit(unit, u.name))
      continue;
    Budget budget{.kind = u.kind, .value = number * u.factor, .text = copy};
    if (u.kind == Budget::Kind::share && number > 100)
      return bad(text, "a share is at most 100%");
    if (budget.value > 1e17)
      return bad(text, "too large");
    if (u.kind == Budget::Kind::bytes && budget.value < 1)
      return bad(text, "less than one byte");
    if (u.kind == Budget::Kind::rows && budget.value < 1)
      return bad(text, "less than one row per kv head");
    return budget;
  }
  return bad(text, "unknown unit '" + std::string(unit) + "'");
}

std::string format_bytes(int64_t bytes) {
  constexpr std::array<const char*, 4> kNames = {"B", "KiB", "MiB", "GiB"};
  auto value = static_cast<double>(bytes);
  size_t i = 0;
  for (; i + 1 < kNames.size() && std::fabs(value) >= 1024; ++i)
    value /= 1024;
  std::array<char, 32> out{};
  std::snprintf(out.data(), out.size(), i == 0 ? "%.0f %s" : "%.2f %s", value, kNames[i]);
  return out.data();
}

}  // namespace kedge
