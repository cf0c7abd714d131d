// Report files: written whole or not at all.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "kedge/error.h"

namespace kedge {

// Before the long work: can a file be made there? Leaves nothing behind. An empty path is fine. Error failed.
Status check_writable(const std::string& path);

// A temporary file beside it, then a rename; what is no regular file (/dev/null, a pipe) is written in place. Error
// failed.
Status write_file(const std::string& path, std::string_view content);
inline Status write_file(const std::string& path, std::span<const std::byte> bytes) {
  return write_file(path, std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

// Writes everything to a descriptor; a closed pipe or a full disk is an error.
Status write_all(int fd, std::string_view content, const std::string& name);

}  // namespace kedge
