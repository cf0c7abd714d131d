// From the command line's settings to a run's configuration.
#pragma once

#include "cli/settings.h"
#include "eval/config.h"
#include "eval/match_quality.h"

namespace kedge::eval {

// Error usage names the flag. The hashes are not filled in.
Result<Config> config_of(const cli::Settings& settings);

bool match_asked(const cli::Settings& settings);
MatchTarget match_target(const cli::Settings& settings);

// The settings without those of the grid: for the options that all sessions share.
cli::Settings base_settings(const cli::Settings& settings);

}  // namespace kedge::eval
