#include "train/lm_program.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

namespace kedge::train {
namespace {

constexpr const char* kName = "kedge-train-lm";

std::string lm_program() {
  std::error_code error;
  const std::filesystem::path own = std::filesystem::read_symlink("/proc/self/exe", error);
  return (own.parent_path() / kName).string();
}

}  // namespace

Status find_lm_program() {
  const std::string path = lm_program();
  if (access(path.c_str(), X_OK) == 0)
    return {};
  return Error{ErrorCode::failed,
               "training on the language-model loss is a component of its own, which was not "
               "built: no " +
                   path +
                   "; it needs libtorch: tools/setup --with train, then build "
                   "again (make build)"};
}

Error become_lm_program(std::span<const std::string> args) {
  const std::string path = lm_program();
  std::vector<char*> argv = {const_cast<char*>(kName)};
  for (const std::string& arg : args)
    argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  execv(path.c_str(), argv.data());
  return {ErrorCode::failed, path + ": cannot be started: " + std::strerror(errno)};
}

}  // namespace kedge::train
