#pragma once

#include <string>

#include "kedge/error.h"

namespace kedge::cli {

// What a session file holds, as text or as one JSON object. Error failed: damaged, as restoring would say.
Result<std::string> inspect_session(const std::string& path, bool as_json);

}  // namespace kedge::cli
