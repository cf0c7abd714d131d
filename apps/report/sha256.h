// SHA-256 (FIPS 180-4), for the hashes of a content security policy.
#pragma once

#include <string>
#include <string_view>

namespace kedge::report {

// Base64 of the digest: what stands after 'sha256- in a policy.
std::string sha256_base64(std::string_view text);

}  // namespace kedge::report
