// --kv-protect, --kv-domain, --kv-pin, --kv-pin-system, --kv-special-quota, --kv-protect-overflow.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kedge/model.h"
#include "kedge/session.h"
#include "settings.h"

namespace kedge::cli {

// What the settings protect, without the model: files are read. Error usage names the flag, or the file and line.
Result<Protection> protection_of(const Settings& settings);

// "0-63,500-519,7": token positions, both ends included. Error usage.
Result<std::vector<TokenSpan>> parse_spans(std::string_view list);

// Tokens of everything that a conversation begins with before the user's first message: the system message, or the
// template's own. Error usage: a template that does not leave the message as it is.
Result<TokenSpan> system_span(const Model& model, const Settings& settings);

}  // namespace kedge::cli
