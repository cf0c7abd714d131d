// kedge-train-lm: what `kedge train-gate --stage lm` runs, with the same arguments. A program of its own, so that kedge
// loads no libtorch.
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "cli/console.h"
#include "cli/help.h"
#include "cli/options.h"
#include "cli/prompt.h"
#include "cli/signals.h"
#include "cli/verbs.h"
#include "train_lm/train_lm.h"

namespace kedge::lm {
namespace {

int run_program(const std::vector<std::string>& args) {
  if (Status status = cli::open_log(false, ""); !status)
    return cli::report(status.error());
  const Result<cli::Settings> settings = cli::read_settings(cli::kTrain, args, cli::process_environment());
  if (!settings)
    return cli::report(settings.error());
  if (settings->help) {
    for (const cli::VerbSpec& verb : cli::verbs()) {
      if (verb.bit == cli::kTrain && !cli::print_text(cli::help_page(verb)))
        return 1;
    }
    return 0;
  }
  if (Status status = cli::open_log(settings->verbose, settings->log_file); !status)
    return cli::report(status.error());
  const Status status = train_lm(*settings);
  return status.ok() ? 0 : cli::report(status.error());
}

}  // namespace
}  // namespace kedge::lm

int main(int argc, char** argv) {
  kedge::cli::install_signal_handlers();
  try {
    return kedge::lm::run_program(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
  } catch (const std::exception& error) {  // libtorch throws; memory may run out
    return kedge::cli::report({.code = kedge::ErrorCode::failed, .message = error.what()});
  }
}
