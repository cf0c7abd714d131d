#include "eviction/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "eviction/registry.h"

namespace kedge::eviction {
namespace {

using Kind = OptionInfo::Kind;

constexpr double kMostRows = 16777216;  // positions are scored as f32: exact up to here

Error usage(std::string message) { return {.code = ErrorCode::usage, .message = std::move(message)}; }

std::string number_text(double value) {
  char buffer[64];
  const auto result = std::to_chars(buffer, buffer + sizeof buffer, value);  // the shortest that parses back
  return {buffer, result.ptr};
}

bool parse_number(std::string_view text, double& value) {
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size() || !std::isfinite(value))
    return false;
  if (value == 0)
    value = 0;  // "-0" is spelled "0"
  return true;
}

bool is_whole(double value) { return value == std::floor(value); }

Error bad_value(const OptionInfo& option, std::string_view method, std::string_view found) {
  return usage("option '" + option.name + "' of '" + std::string(method) + "': " + quoted(found) + " is not allowed (" +
               range_text(option) + ")");
}

// One value into `out`; its canonical spelling is returned.
Result<std::string> parse_value(const OptionInfo& option, std::string_view method, std::string_view text,
                                OptionValues& out) {
  if (option.kind == Kind::choice) {
    if (std::find(option.choices.begin(), option.choices.end(), text) == option.choices.end()) {
      const std::string nearest = nearest_name(text, option.choices);
      return usage(bad_value(option, method, text).message + ", did you mean '" + nearest + "'?");
    }
    out.choices[option.name] = std::string(text);
    return std::string(text);
  }
  if (option.kind == Kind::text) {
    out.choices[option.name] = std::string(text);
    return std::string(text);
  }
  if (option.kind == Kind::flag) {
    const bool is_on = text == "on" || text == "true" || text == "1";
    if (!is_on && text != "off" && text != "false" && text != "0")
      return bad_value(option, method, text);
    out.numbers[option.name] = is_on ? 1 : 0;
    return std::string(is_on ? "on" : "off");
  }
  const bool is_share = option.kind == Kind::percent_or_rows && text.ends_with('%');
  double value = 0;
  if (!parse_number(is_share ? text.substr(0, text.size() - 1) : text, value))
    return bad_value(option, method, text);
  if (is_share) {
    if (value < 0 || value > 100)
      return bad_value(option, method, text);
    out.rows[option.name] = {.value = value / 100, .is_share = true};
    return number_text(value) + "%";
  }
  if (value < option.min || value > option.max)
    return bad_value(option, method, text);
  if (option.kind != Kind::real && !is_whole(value))
    return bad_value(option, method, text);
  if (option.must_be_odd && std::fmod(value, 2) == 0)
    return bad_value(option, method, text);
  if (option.kind == Kind::percent_or_rows) {
    out.rows[option.name] = {.value = value, .is_share = false};
  } else {
    out.numbers[option.name] = value;
  }
  return option.kind == Kind::real ? number_text(value) : std::to_string(static_cast<int64_t>(value));
}

std::vector<std::string> option_names(const MethodInfo& method) {
  std::vector<std::string> names;
  for (const OptionInfo& option : method.options)
    names.push_back(option.name);
  return names;
}

}  // namespace

OptionInfo integer_option(std::string name, std::string fallback, Range range, std::string help) {
  OptionInfo option;
  option.name = std::move(name);
  option.kind = Kind::integer;
  option.fallback = std::move(fallback);
  option.min = range.min;
  option.max = range.max;
  option.help = std::move(help);
  return option;
}

OptionInfo odd_option(std::string name, std::string fallback, Range range, std::string help) {
  OptionInfo option = integer_option(std::move(name), std::move(fallback), range, std::move(help));
  option.must_be_odd = true;
  return option;
}

OptionInfo real_option(std::string name, std::string fallback, Range range, std::string help) {
  OptionInfo option = integer_option(std::move(name), std::move(fallback), range, std::move(help));
  option.kind = Kind::real;
  return option;
}

OptionInfo choice_option(std::string name, std::vector<std::string> choices, std::string help) {
  OptionInfo option = integer_option(std::move(name), choices.front(), {}, std::move(help));
  option.kind = Kind::choice;
  option.choices = std::move(choices);
  return option;
}

OptionInfo text_option(std::string name, std::string fallback, std::string help) {
  OptionInfo option = integer_option(std::move(name), std::move(fallback), {}, std::move(help));
  option.kind = Kind::text;
  return option;
}

OptionInfo rows_option(std::string name, std::string fallback, std::string help) {
  OptionInfo option =
      integer_option(std::move(name), std::move(fallback), {.min = 0, .max = kMostRows}, std::move(help));
  option.kind = Kind::percent_or_rows;
  return option;
}

OptionInfo for_allocator(OptionInfo option) {
  option.to_allocator = true;
  return option;
}

int RowCount::rows(double budget_rows) const {
  const double rows = is_share ? value * budget_rows : value;
  return static_cast<int>(std::clamp(std::floor(rows + 0.5), 0.0, 1e9));
}

std::string range_text(const OptionInfo& option) {
  switch (option.kind) {
    case Kind::choice:
      return joined(option.choices, "|");
    case Kind::flag:
      return "on|off";
    case Kind::text:
      return "text";
    case Kind::percent_or_rows:
      return "0..100% or " + number_text(option.min) + ".." + std::to_string(static_cast<int64_t>(option.max)) +
             " rows";
    case Kind::integer:
    case Kind::real:
      break;
  }
  return number_text(option.min) + ".." + number_text(option.max) + (option.must_be_odd ? ", odd" : "");
}

Result<std::vector<GivenOption>> split_options(std::string_view text, std::string_view method) {
  std::vector<GivenOption> given;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view piece = text.substr(0, comma);
    const size_t equals = piece.find('=');
    if (equals == std::string_view::npos || equals == 0 || equals + 1 == piece.size()) {
      return usage("options of '" + std::string(method) + "': " + quoted(piece) + " is not key=value");
    }
    const std::string key(piece.substr(0, equals));
    for (const GivenOption& other : given) {
      if (other.key == key)
        return usage("options of '" + std::string(method) + "': " + quoted(key) + " is given twice");
    }
    given.push_back({.key = key, .value = std::string(piece.substr(equals + 1))});
    if (comma + 1 == text.size())
      return usage("options of '" + std::string(method) + "' end with a comma");
    text = comma == text.size() ? std::string_view() : text.substr(comma + 1);
  }
  return given;
}

Result<ResolvedOptions> resolve_options(const MethodInfo& method, const std::vector<GivenOption>& given) {
  const std::vector<std::string> names = option_names(method);
  for (const GivenOption& option : given) {
    if (std::find(names.begin(), names.end(), option.key) != names.end())
      continue;
    std::string message = "unknown option " + quoted(option.key) + " of '" + method.name + "'";
    if (names.empty())
      return usage(message + ", which has none");
    return usage(message + ", did you mean '" + nearest_name(option.key, names) +
                 "'? (options: " + joined(names, ", ") + ")");
  }
  ResolvedOptions out;
  for (const OptionInfo& option : method.options) {
    if (option.to_allocator)
      continue;
    std::string_view value = option.fallback;
    for (const GivenOption& one : given) {
      if (one.key == option.name)
        value = one.value;
    }
    Result<std::string> spelled = parse_value(option, method.name, value, out.values);
    if (!spelled)
      return spelled.error();
    if (!out.text.empty())
      out.text += ',';
    out.text += option.name + "=" + *spelled;
  }
  return out;
}

}  // namespace kedge::eviction
