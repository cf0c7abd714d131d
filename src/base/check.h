// An always-on check for our own mistakes. The world's mistakes are Result<T> (kedge/error.h).
#pragma once

#include <cstdio>
#include <cstdlib>
#include <source_location>

namespace kedge {

// Aborts with file, line and `what` unless `condition` holds. Cheap enough to stay in release builds.
inline void check(bool condition, const char* what, std::source_location where = std::source_location::current()) {
  if (condition) [[likely]]
    return;
  std::fprintf(stderr, "kedge: internal check failed: %s (%s:%u)\n", what, where.file_name(), where.line());
  std::abort();
}

}  // namespace kedge
