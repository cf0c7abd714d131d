#include "argv.h"

namespace kedge::cli {
namespace {

const OptionSpec* find(std::string_view word, std::span<const OptionSpec> table) {
  for (const OptionSpec& spec : table) {
    if (word == spec.name || (!spec.short_name.empty() && word == spec.short_name)) return &spec;
  }
  return nullptr;
}

}  // namespace

std::vector<std::string> translate_argv(std::span<const std::string> args, std::span<const OptionSpec> table) {
  std::vector<std::string> out;
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string& word = args[i];
    if (word == "--") {
      out.insert(out.end(), args.begin() + static_cast<std::ptrdiff_t>(i), args.end());
      break;
    }
    const OptionSpec* spec = find(word, table);
    if (spec != nullptr) {
      out.emplace_back(spec->name);
      if (!spec->is_switch() && i + 1 < args.size()) out.push_back(args[++i]);
      continue;
    }
    // "-ub=64" and "--kv-budget=-1MiB": the value apart, so that an empty one stays a value.
    const size_t equals = word.find('=');
    spec = equals == std::string::npos ? nullptr : find(std::string_view(word).substr(0, equals), table);
    if (spec != nullptr && !spec->is_switch()) {
      out.emplace_back(spec->name);
      out.push_back(word.substr(equals + 1));
      continue;
    }
    out.push_back(word);
  }
  return out;
}

}  // namespace kedge::cli
