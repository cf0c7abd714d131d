// SHA-256 (FIPS 180-4) through OpenSSL, as lower-case hex.
#pragma once

#include <string>
#include <string_view>

#include "kedge/error.h"

namespace kedge::eval {

std::string sha256_of(std::string_view bytes);
// Error failed names the file; cancelled.
Result<std::string> sha256_of_file(const std::string& path);

}  // namespace kedge::eval
