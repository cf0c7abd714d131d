// SHA-256 (base/sha256.h) as the program needs it.
#pragma once

#include <string>
#include <string_view>

#include "base/sha256.h"
#include "kedge/error.h"

namespace kedge::cli {

using kedge::sha256_hex;

std::string sha256_base64(std::string_view bytes);  // what stands after 'sha256- in a content security policy
// Hex of a file's bytes. Error failed names the file; cancelled.
Result<std::string> sha256_of_file(const std::string& path);

}  // namespace kedge::cli
