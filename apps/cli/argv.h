// llama.cpp's spelling of flags, made plain for CLI11.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "options.h"

namespace kedge::cli {

struct Arguments {
  std::vector<std::string> words;       // for CLI11: long names only
  std::vector<std::string> positional;  // all after "--"
};

// CLI11 reads "-ub 64" as "-u b". Known short names become their long ones; what follows an option that takes a value
// is that value, whatever it looks like ("-n -1", "-p --help", "-p -ub"). Other words are untouched.
Arguments translate_argv(std::span<const std::string> args, std::span<const OptionSpec> table);

}  // namespace kedge::cli
