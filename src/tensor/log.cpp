#include "tensor/log.h"

#include <ggml.h>

#include <cstring>
#include <mutex>
#include <utility>

namespace kedge::tensor {
namespace {

struct LastLine {
  std::mutex mutex;
  std::string text;
};

LastLine& last_line() {
  static LastLine line;
  return line;
}

void log_callback(ggml_log_level level, const char* text, void* user) {
  keep_last_error(static_cast<int>(level), text, user);
}

}  // namespace

void silence_ggml() {
  static const bool installed = [] {
    ggml_log_set(log_callback, nullptr);
    return true;
  }();
  (void)installed;
}

void keep_last_error(int level, const char* text, void* /*user*/) {
  if (level != GGML_LOG_LEVEL_WARN && level != GGML_LOG_LEVEL_ERROR)
    return;
  LastLine& line = last_line();
  const std::lock_guard lock(line.mutex);
  // The first error is the cause; what follows ("failed to load model") only repeats that there was one.
  if (!line.text.empty())
    return;
  line.text.assign(text, strcspn(text, "\n"));
}

std::string take_last_log_error() {
  LastLine& line = last_line();
  const std::lock_guard lock(line.mutex);
  return std::exchange(line.text, {});
}

}  // namespace kedge::tensor
