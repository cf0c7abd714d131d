#include "eval/source_files.h"

#include <algorithm>
#include <filesystem>

#include "cli/text_input.h"

namespace kedge::eval {
namespace {

namespace fs = std::filesystem;

constexpr uintmax_t kMaxFileBytes = uintmax_t{1} << 20;
constexpr size_t kMaxTextBytes = size_t{64} << 20;

Error usage(std::string message) { return {.code = ErrorCode::usage, .message = std::move(message)}; }

bool wanted(const fs::path& path, const std::string& ext) {
  const std::string found = path.extension().string();
  if (found.size() < 2)
    return false;
  if (ext != "auto")
    return found.substr(1) == ext;
  const std::vector<std::string> known = source_extensions();
  return std::ranges::find(known, found.substr(1)) != known.end();
}

// Paths relative to the folder, with '/', sorted by bytes.
Result<std::vector<std::string>> list_files(const std::string& folder, const std::string& ext) {
  std::error_code error;
  std::vector<std::string> paths;
  fs::recursive_directory_iterator at(folder, error);
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    const fs::path& path = at->path();
    const bool hidden = path.filename().string().starts_with('.');
    std::error_code ignored;
    if (at->is_symlink(ignored))
      continue;
    if (at->is_directory(ignored)) {
      if (hidden)
        at.disable_recursion_pending();
    } else if (!hidden && at->is_regular_file(ignored) && wanted(path, ext) &&
               at->file_size(ignored) <= kMaxFileBytes) {
      paths.push_back(path.lexically_relative(folder).generic_string());
    }
  }
  if (error)
    return Error{.code = ErrorCode::failed, .message = "code: cannot list '" + folder + "': " + error.message()};
  std::ranges::sort(paths);
  return paths;
}

void append_file(SourceFiles& sources, const std::string& path, const std::string& text) {
  sources.text.append("// File: ").append(path).append("\n");
  std::vector<SourceLine> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back({.begin = sources.text.size() + begin, .end = sources.text.size() + end});
    begin = end + 1;
  }
  sources.text.append(text).append(text.ends_with('\n') ? "\n" : "\n\n");
  sources.files.push_back(std::move(lines));
}

}  // namespace

std::vector<std::string> source_extensions() {
  return {"auto", "c", "cc",  "cpp", "cs", "cu", "go", "h",  "hpp",   "java", "js",    "jl", "kt",
          "lua",  "m", "php", "pl",  "py", "r",  "rb", "rs", "scala", "sh",   "swift", "ts"};
}

Result<SourceFiles> read_source_files(const std::string& folder, const std::string& ext) {
  std::error_code ignored;
  if (folder.empty() || !fs::is_directory(folder, ignored))
    return usage("code: " + (folder.empty() ? std::string("no folder") : "'" + folder + "' is no folder") +
                 ": give -f FOLDER of source files");
  const Result<std::vector<std::string>> paths = list_files(folder, ext);
  if (!paths)
    return paths.error();
  SourceFiles sources;
  for (const std::string& path : *paths) {
    if (sources.text.size() >= kMaxTextBytes)
      break;
    const Result<std::string> text = cli::read_text((fs::path(folder) / path).string());
    if (!text)
      return text.error();
    if (!text->empty() && text->find('\0') == std::string::npos)
      append_file(sources, path, *text);
  }
  if (sources.files.empty())
    return usage("code: '" + folder + "' has no source files (ext=" + ext + ")");
  return sources;
}

}  // namespace kedge::eval
