#include "options.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <type_traits>
#include <vector>

#include "argv.h"
#include "nearest.h"
#include "presets.h"

namespace kedge::cli {
namespace {

Error usage(std::string message) { return {.code = ErrorCode::usage, .message = std::move(message)}; }

std::string in_quotes(std::string_view text) { return "'" + std::string(text) + "'"; }

std::string number_text(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.10g", value);
  return buffer;
}

std::vector<std::string> split_choices(std::string_view choices) {
  std::vector<std::string> out;
  while (!choices.empty()) {
    const size_t bar = choices.find('|');
    out.emplace_back(choices.substr(0, bar));
    choices = bar == std::string_view::npos ? std::string_view() : choices.substr(bar + 1);
  }
  return out;
}

template <typename T>
Result<T> parse_number(const OptionSpec& spec, std::string_view text, std::string_view origin) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  const char* kind = std::is_integral_v<T> ? "a whole number" : "a number";
  const std::string range = number_text(spec.min) + ".." + number_text(spec.max);
  if (error == std::errc::invalid_argument || (error == std::errc() && stop != end)) {
    return usage(std::string(origin) + ": " + in_quotes(text) + " is not " + kind + " (" + range + ")");
  }
  double wide = static_cast<double>(value);
  if constexpr (std::is_floating_point_v<T>)
    std::from_chars(text.data(), end, wide);  // 0.01F is below 0.01, and is allowed where 0.01 is the least
  if (error != std::errc() || !std::isfinite(wide) || wide < spec.min || wide > spec.max) {
    return usage(std::string(origin) + ": " + in_quotes(text) + " is outside " + range);
  }
  return value;
}

Result<bool> parse_bool(std::string_view text, std::string_view origin) {
  for (const std::string_view word : {"true", "1", "on", "yes"}) {
    if (text == word)
      return true;
  }
  for (const std::string_view word : {"false", "0", "off", "no"}) {
    if (text == word)
      return false;
  }
  return usage(std::string(origin) + ": " + in_quotes(text) + " is neither true nor false");
}

Status check_choice(const OptionSpec& spec, std::string_view text, std::string_view origin) {
  if (spec.choices.empty())
    return {};
  const std::vector<std::string> choices = split_choices(spec.choices);
  for (const std::string& choice : choices) {
    if (choice == text)
      return {};
  }
  return usage(std::string(origin) + ": unknown value " + in_quotes(text) + ", the nearest is " +
               in_quotes(nearest(text, choices)) + " (" + std::string(spec.choices) + ")");
}

template <typename Value, typename Target>
Status take(Result<Value> parsed, Target& target) {
  if (!parsed)
    return parsed.error();
  target = *std::move(parsed);
  return {};
}

// CLI11's view of one verb: every option as text, in the order of `rows`.
struct ParsedArgs {
  std::map<std::string, std::vector<std::string>> values;  // by option key; one, or all of a list
  std::vector<std::string> extras;                         // what is no option: words and unknown flags
  std::vector<std::string> positional;                     // after "--"
};

bool is_list(const OptionSpec& row) { return std::holds_alternative<std::vector<std::string> Settings::*>(row.field); }

// Every value of a flag, in order. CLI11 would take "[a,b]" apart.
std::vector<std::string> all_values(const OptionSpec& wanted, std::span<const std::string> words,
                                    std::span<const OptionSpec> rows) {
  std::vector<std::string> out;
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    const auto row = std::ranges::find(rows, words[i], [](const OptionSpec& r) { return std::string(r.name); });
    if (row == rows.end() || row->is_switch())
      continue;
    ++i;
    if (row->name == wanted.name)
      out.push_back(words[i]);
  }
  return out;
}

Result<ParsedArgs> parse_args(std::span<const OptionSpec> rows, std::span<const std::string> args) {
  CLI::App app;
  app.set_help_flag();  // ours is a row of the table
  app.allow_extras();
  std::vector<std::string> texts(rows.size());
  std::vector<CLI::Option*> options;
  for (size_t i = 0; i < rows.size(); ++i) {
    // Long names only: translate_argv has replaced the short ones, and CLI11 would read the unknown "-ctq" as "-c tq".
    const std::string name(rows[i].name);
    CLI::Option* option = rows[i].is_switch() ? app.add_flag(name) : app.add_option(name, texts[i]);
    options.push_back(option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast));
  }
  Arguments translated = translate_argv(args, rows);
  std::vector<std::string> reversed = translated.words;
  std::reverse(reversed.begin(), reversed.end());  // CLI11 takes its vector from the back
  try {
    app.parse(std::move(reversed));
  } catch (const CLI::ParseError& error) {
    return usage(error.what());
  }
  ParsedArgs parsed{.values = {}, .extras = app.remaining(), .positional = std::move(translated.positional)};
  for (size_t i = 0; i < rows.size(); ++i) {
    if (options[i]->count() == 0)
      continue;
    parsed.values[rows[i].key()] = is_list(rows[i]) ? all_values(rows[i], translated.words, rows)
                                                    : std::vector<std::string>{options[i]->results().back()};
  }
  return parsed;
}

std::string allowed_names(std::string_view word, std::span<const OptionSpec> rows) {
  std::vector<std::string> names;
  for (const OptionSpec& row : rows) {
    names.emplace_back(row.name);
    // A short word is nearer to every short name than to any long one: compare it with those only by chance.
    if (word.size() <= 4 && !row.short_name.empty())
      names.emplace_back(row.short_name);
  }
  return nearest(word, names);
}

// Fills one field from the first source that has it.
struct Sources {
  const std::map<std::string, std::vector<std::string>>& args;
  const std::map<std::string, std::string>& config;
  const Environment& environment;
};

Status fill(const OptionSpec& row, const Sources& sources, Settings& settings) {
  const std::string key = row.key();
  if (const auto found = sources.args.find(key); found != sources.args.end()) {
    for (const std::string& text : found->second) {
      if (Status status = assign(row, text, row.name, settings); !status)
        return status;
    }
    return {};
  }
  if (const auto value = sources.environment(row.env_name()))
    return assign(row, *value, row.env_name(), settings);
  if (const auto found = sources.config.find(key); found != sources.config.end()) {
    return assign(row, found->second, key, settings);
  }
  return {};
}

bool is_given(const OptionSpec& row, const Sources& sources) {
  const std::string key = row.key();
  return sources.args.contains(key) || sources.environment(row.env_name()) || sources.config.contains(key);
}

// Whatever is given, by whichever source, wins over the preset.
Status fill_from_preset(std::span<const OptionSpec> rows, const Sources& sources, Settings& settings) {
  for (const OptionSpec& row : rows) {
    const std::string_view value = preset_value(settings.preset, row.key());
    if (value.empty() || is_given(row, sources))
      continue;
    if (Status status = assign(row, value, "--preset " + settings.preset, settings); !status)
      return status;
  }
  return {};
}

}  // namespace

std::string OptionSpec::key() const { return std::string(name.substr(2)); }

std::string OptionSpec::env_name() const {
  std::string out = "KEDGE_" + key();
  for (char& c : out) {
    if (c == '-')
      c = '_';
    if (c >= 'a' && c <= 'z')
      c = static_cast<char>(c - 'a' + 'A');
  }
  return out;
}

Status assign(const OptionSpec& spec, std::string_view text, std::string_view origin, Settings& settings) {
  if (Status status = check_choice(spec, text, origin); !status)
    return status;
  return std::visit(
      [&](auto member) -> Status {
        auto& target = settings.*member;
        using Target = std::remove_reference_t<decltype(target)>;
        if constexpr (std::is_same_v<Target, bool>) {
          return take(parse_bool(text, origin), target);
        } else if constexpr (std::is_same_v<Target, int> || std::is_same_v<Target, float>) {
          return take(parse_number<Target>(spec, text, origin), target);
        } else if constexpr (std::is_same_v<Target, std::optional<int64_t>>) {
          return take(parse_number<int64_t>(spec, text, origin), target);
        } else if constexpr (std::is_same_v<Target, std::vector<std::string>>) {
          target.emplace_back(text);
          return {};
        } else {
          target = std::string(text);
          return {};
        }
      },
      spec.field);
}

std::string default_text(const OptionSpec& spec) {
  static const Settings defaults;
  return std::visit(
      [](auto member) -> std::string {
        const auto& value = defaults.*member;
        using Value = std::remove_cvref_t<decltype(value)>;
        if constexpr (std::is_same_v<Value, std::string>) {
          return value;
        } else if constexpr (std::is_same_v<Value, int> || std::is_same_v<Value, float>) {
          char buffer[32];
          std::snprintf(buffer, sizeof buffer, "%.6g", static_cast<double>(value));
          return buffer;
        } else {
          return {};  // switches are off, optional values not given
        }
      },
      spec.field);
}

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr || *value == '\0')
      return std::nullopt;
    return std::string(value);
  };
}

Result<Settings> read_settings(unsigned verb, std::span<const std::string> args, const Environment& environment) {
  std::vector<OptionSpec> rows;
  for (const OptionSpec& row : option_table()) {
    if ((row.verbs & verb) != 0)
      rows.push_back(row);
  }
  Result<ParsedArgs> parsed = parse_args(rows, args);
  if (!parsed)
    return parsed.error();

  Settings settings;
  settings.args.assign(args.begin(), args.end());
  for (const std::string& extra : parsed->extras) {
    if (extra.size() > 1 && extra[0] == '-') {
      const std::string flag = extra.substr(0, extra.find('='));
      return usage("unknown flag " + in_quotes(flag) + ", the nearest is " + allowed_names(flag, rows));
    }
    settings.positional.push_back(extra);
  }
  settings.positional.insert(settings.positional.end(), parsed->positional.begin(), parsed->positional.end());

  if (parsed->values.contains("help")) {  // a page of help is never refused for what else is wrong
    settings.help = true;
    return settings;
  }
  std::map<std::string, std::string> config;
  const Sources sources{.args = parsed->values, .config = config, .environment = environment};
  for (const OptionSpec& row : rows) {
    if (row.key() != "config")
      continue;
    if (Status status = fill(row, sources, settings); !status)
      return status.error();
  }
  if (!settings.config.empty()) {
    Result<std::map<std::string, std::string>> read = read_config_file(settings.config);
    if (!read)
      return read.error();
    config = *std::move(read);
  }
  for (const OptionSpec& row : rows) {
    if (row.key() == "config" || row.key() == "help")
      continue;
    if (Status status = fill(row, sources, settings); !status)
      return status.error();
  }
  if (Status status = fill_from_preset(rows, sources, settings); !status)
    return status.error();
  return settings;
}

}  // namespace kedge::cli
