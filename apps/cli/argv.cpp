#include "argv.h"

namespace kedge::cli {
namespace {

const OptionSpec* find(std::string_view word, std::span<const OptionSpec> table) {
  for (const OptionSpec& spec : table) {
    if (word == spec.name || (!spec.short_name.empty() && word == spec.short_name))
      return &spec;
  }
  return nullptr;
}

}  // namespace

Arguments translate_argv(std::span<const std::string> args, std::span<const OptionSpec> table) {
  Arguments out;
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string& word = args[i];
    if (word == "--") {
      out.positional.assign(args.begin() + static_cast<std::ptrdiff_t>(i) + 1, args.end());
      break;
    }
    const OptionSpec* spec = find(word, table);
    if (spec != nullptr) {
      out.words.emplace_back(spec->name);
      if (!spec->is_switch() && i + 1 < args.size())
        out.words.push_back(args[++i]);
      continue;
    }
    // "-ub=64" and "--kv-budget=-1MiB": the value apart, so that an empty one stays a value.
    const size_t equals = word.find('=');
    spec = equals == std::string::npos ? nullptr : find(std::string_view(word).substr(0, equals), table);
    if (spec != nullptr && !spec->is_switch()) {
      out.words.emplace_back(spec->name);
      out.words.push_back(word.substr(equals + 1));
      continue;
    }
    out.words.push_back(word);
  }
  return out;
}

}  // namespace kedge::cli
