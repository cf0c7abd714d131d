// The one table of options: flag names, environment variable, key of the config file, field, range, default and help
// are all derived from one row. Sources in order: command line, environment, config file, preset (presets.h), default.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "kedge/error.h"
#include "settings.h"

namespace kedge::cli {

// Verbs as bits, so that one row can belong to several.
enum VerbBit : unsigned {
  kRun = 1,
  kPerplexity = 2,
  kInspect = 4,
  kPolicies = 8,
  kEval = 16,
  kBench = 32,
  kReport = 64,
  kTrain = 128,
};

// A list takes every occurrence of its flag; all others the last one.
using Field =
    std::variant<std::string Settings::*, std::optional<std::string> Settings::*, int Settings::*, float Settings::*,
                 bool Settings::*, std::optional<int64_t> Settings::*, std::vector<std::string> Settings::*>;

struct OptionSpec {
  std::string_view short_name;  // "-m", "-ub", or empty
  std::string_view name;        // "--model"
  std::string_view value;       // "FILE"; empty: a switch
  std::string_view group;
  unsigned verbs;
  Field field;
  std::string_view help;
  double min = std::numeric_limits<double>::lowest();
  double max = std::numeric_limits<double>::max();
  std::string_view choices = {};  // "auto|plain|json|none"; empty: anything

  bool is_switch() const { return value.empty(); }
  std::string key() const;       // "kv-budget": of the config file
  std::string env_name() const;  // "KEDGE_KV_BUDGET"
};

std::span<const OptionSpec> option_table();

// Takes `text` into the row's field. `origin` says where it came from ("--temp", "KEDGE_TEMP"). Error usage.
Status assign(const OptionSpec& spec, std::string_view text, std::string_view origin, Settings& settings);

// The default as the user would write it; empty where there is none.
std::string default_text(const OptionSpec& spec);

// The value of an environment variable, or nothing where it is unset or empty.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
Environment process_environment();

// Values by option key from a TOML file. Errors: failed (unreadable), usage (not TOML, unknown key, table or list).
Result<std::map<std::string, std::string>> read_config_file(const std::string& path);
Result<std::map<std::string, std::string>> parse_config(std::string_view toml, const std::string& path);

// Reads the arguments after the verb and fills in what they leave open from the other sources. Error usage.
Result<Settings> read_settings(unsigned verb, std::span<const std::string> args, const Environment& environment);

}  // namespace kedge::cli
