// kedge VERB [options]: finds the verb, reads its settings, runs it.
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "base/huge_pages.h"
#include "console.h"
#include "help.h"
#include "nearest.h"
#include "options.h"
#include "prompt.h"
#include "signals.h"
#include "verbs.h"

namespace kedge::cli {
namespace {

const VerbSpec* find_verb(const std::string& name) {
  for (const VerbSpec& verb : verbs()) {
    if (verb.name == name)
      return &verb;
  }
  return nullptr;
}

int show(const std::string& text) {
  const Status status = print_text(text);
  return status.ok() ? 0 : report(status.error());
}

int unknown_verb(const std::string& word) {
  std::vector<std::string> names = {"help", "--help", "--version"};
  for (const VerbSpec& verb : verbs())
    names.emplace_back(verb.name);
  const char* what = word.starts_with("-") ? "unknown flag '" : "unknown verb '";
  return report({.code = ErrorCode::usage, .message = what + word + "', the nearest is " + nearest(word, names)});
}

int run_program(const std::vector<std::string>& args) {
  if (Status status = open_log(false, ""); !status)
    return report(status.error());
  if (args.empty()) {
    std::fputs(help_page().c_str(), stderr);
    return exit_code(ErrorCode::usage);
  }
  const std::string& first = args.front();
  if (first == "--version")
    return show("kedge " KEDGE_VERSION "\n");
  if (first == "--help-markdown")
    return show(markdown_page());
  if (first == "help" || first == "--help" || first == "-h") {
    if (args.size() == 1)
      return show(help_page());
    const VerbSpec* verb = find_verb(args[1]);
    return verb == nullptr ? unknown_verb(args[1]) : show(help_page(*verb));
  }
  const VerbSpec* verb = find_verb(first);
  if (verb == nullptr)
    return unknown_verb(first);
  const std::vector<std::string> rest(args.begin() + 1, args.end());
  Result<Settings> settings = read_settings(verb->bit, rest, process_environment());
  if (!settings)
    return report(settings.error());
  if (settings->help)
    return show(help_page(*verb));
  if (Status status = open_log(settings->verbose, settings->log_file); !status)
    return report(status.error());
  return verb->run(*settings);
}

}  // namespace
}  // namespace kedge::cli

int main(int argc, char** argv) {
  kedge::cli::install_signal_handlers();
  kedge::put_heap_in_huge_pages();
  try {
    return kedge::cli::run_program(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
  } catch (const std::exception& error) {  // nothing of ours throws; memory may still run out
    return kedge::cli::report({.code = kedge::ErrorCode::failed, .message = error.what()});
  }
}
