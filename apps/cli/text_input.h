// Reading a text whole: a file, gzip by its first bytes, or standard input.
#pragma once

#include <string>
#include <string_view>

#include "kedge/error.h"

namespace kedge::cli {

// path "-" is standard input. Errors: failed (missing, unreadable, damaged gzip), cancelled (a signal while reading).
Result<std::string> read_text(const std::string& path);

bool is_gzip(std::string_view bytes);

// All members of a gzip file. Error failed, with `name` in the message.
Result<std::string> gunzip(std::string_view bytes, const std::string& name);

}  // namespace kedge::cli
