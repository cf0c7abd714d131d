// The source files of a folder as one text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kedge/error.h"

namespace kedge::eval {

struct SourceLine {
  size_t begin = 0;  // byte in SourceFiles::text
  size_t end = 0;    // before the line break
};

struct SourceFiles {
  std::string text;  // every file after a line "// File: path"
  std::vector<std::vector<SourceLine>> files;
};

// Regular files under `folder` whose name ends in ".ext" ("auto": in any of the extensions known here), in the byte
// order of their paths. Left out: hidden files and folders, links, files of more than 1 MiB or with a zero byte; what
// comes after 64 MiB of text. Errors: usage (no folder, no such files), failed (a file that cannot be read).
Result<SourceFiles> read_source_files(const std::string& folder, const std::string& ext);

// Choices of `ext`, "auto" first.
std::vector<std::string> source_extensions();

}  // namespace kedge::eval
