// SHA-256 (FIPS 180-4) through OpenSSL.
#pragma once

#include <string>
#include <string_view>

#include "kedge/error.h"

namespace kedge::cli {

std::string sha256_hex(std::string_view bytes);     // lower case
std::string sha256_base64(std::string_view bytes);  // what stands after 'sha256- in a content security policy
// Hex of a file's bytes. Error failed names the file; cancelled.
Result<std::string> sha256_of_file(const std::string& path);

}  // namespace kedge::cli
