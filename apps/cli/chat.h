// kedge run --interactive: a conversation in one session.
#pragma once

#include <optional>
#include <string>

#include "kedge/error.h"
#include "kedge/session.h"
#include "settings.h"

namespace kedge::cli {

// What of the rendered conversation is not in the session yet. `held` is the text that is; it ends with `reply`, the
// last answer as it was generated. Templates may trim an answer: then what follows the trimmed one counts. Nothing
// where the rendered text does not continue the held one.
std::optional<std::string> new_part(const std::string& rendered, const std::string& held, const std::string& reply);

// Runs the loop; returns the exit code.
Result<int> chat(const Settings& settings, SessionOptions options);

}  // namespace kedge::cli
