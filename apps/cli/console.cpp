#include "console.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "signals.h"

namespace kedge::cli {
namespace {

constexpr int kBarCells = 30;
constexpr int64_t kSilentTokens = 512;  // a prompt this short is read before a line of progress is

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  std::replace(text.begin(), text.end(), '\r', ' ');
  while (!text.empty() && text.back() == ' ')
    text.pop_back();
  return text;
}

}  // namespace

Status open_log(bool verbose, const std::string& log_file) {
  auto screen = std::make_shared<spdlog::sinks::stderr_sink_st>();
  screen->set_pattern("%v");
  screen->set_level(verbose ? spdlog::level::debug : spdlog::level::info);
  auto logger = std::make_shared<spdlog::logger>("kedge", screen);
  logger->set_level(spdlog::level::debug);
  Status status;
  if (!log_file.empty()) {
    // Tried first: spdlog would make missing folders, and say by exception what is wrong.
    if (std::FILE* file = std::fopen(log_file.c_str(), "a"); file != nullptr) {
      std::fclose(file);
      logger->sinks().push_back(std::make_shared<spdlog::sinks::basic_file_sink_st>(log_file));
      logger->sinks().back()->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
    } else {
      status = Error{.code = ErrorCode::failed,
                     .message = "cannot write the log file '" + log_file + "': " + std::strerror(errno)};
    }
  }
  logger->flush_on(spdlog::level::debug);
  spdlog::set_default_logger(std::move(logger));
  return status;
}

void note(const std::string& line) { spdlog::info("{}", line); }
void detail(const std::string& line) { spdlog::debug("{}", line); }
void warn(const std::string& line) { spdlog::warn("{}", "kedge: warning: " + one_line(line)); }

int report(const Error& error) {
  const int signal_code = signal_exit_code();
  spdlog::error("{}", "kedge: error: " + one_line(error.message));
  return error.code == ErrorCode::cancelled && signal_code != 0 ? signal_code : exit_code(error.code);
}

int exit_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::failed:
      return 1;
    case ErrorCode::usage:
      return 2;
    case ErrorCode::model_unreadable:
      return 3;
    case ErrorCode::budget_impossible:
      return 4;
    case ErrorCode::context_too_long:
      return 1;
    case ErrorCode::in_use:
      return 5;
    case ErrorCode::quality_below:
      return 6;
    case ErrorCode::cancelled:
      return 130;
  }
  return 1;
}

bool stdin_is_terminal() { return ::isatty(STDIN_FILENO) == 1; }
bool stdout_is_terminal() { return ::isatty(STDOUT_FILENO) == 1; }
bool stderr_is_terminal() { return ::isatty(STDERR_FILENO) == 1; }

bool use_colour() {
  const char* no_color = std::getenv("NO_COLOR");
  return stderr_is_terminal() && (no_color == nullptr || *no_color == '\0');
}

Progress::Progress(std::string_view how, std::string what) : what_(std::move(what)) {
  if (how == "none") {
    mode_ = Mode::none;
  } else if (how == "json") {
    mode_ = Mode::json;
  } else {
    mode_ = how == "auto" && stderr_is_terminal() ? Mode::bar : Mode::plain;
  }
}

Progress::~Progress() { clear_bar(); }

void Progress::clear_bar() {
  if (!bar_shown_)
    return;
  std::fprintf(stderr, "\r\x1b[K");
  std::fflush(stderr);
  bar_shown_ = false;
}

void Progress::update(int64_t done, int64_t total) {
  if (mode_ == Mode::none || total <= 0)
    return;
  if (mode_ == Mode::json) {
    std::fprintf(stderr, "{\"event\":\"%s\",\"done\":%lld,\"total\":%lld}\n", what_.c_str(),
                 static_cast<long long>(done), static_cast<long long>(total));
    return;
  }
  if (mode_ == Mode::plain) {
    const int64_t tenth = 10 * done / total;
    if (total <= kSilentTokens || tenth <= last_tenth_ || done >= total)
      return;  // a prompt of one graph is no progress worth a line
    last_tenth_ = tenth;
    std::fprintf(stderr, "%s: %lld of %lld tokens (%lld%%)\n", what_.c_str(), static_cast<long long>(done),
                 static_cast<long long>(total), static_cast<long long>(100 * done / total));
    return;
  }
  const int filled = static_cast<int>(kBarCells * done / total);
  const std::string bar = std::string(filled, '#') + std::string(kBarCells - filled, '.');
  const char* const colour = use_colour() ? "\x1b[36m" : "";
  std::fprintf(stderr, "\r%s [%s%s%s] %lld of %lld", what_.c_str(), colour, bar.c_str(), *colour ? "\x1b[0m" : "",
               static_cast<long long>(done), static_cast<long long>(total));
  std::fflush(stderr);
  bar_shown_ = true;
  if (done >= total)
    clear_bar();
}

void Progress::line(const std::string& text) {
  clear_bar();
  if (mode_ == Mode::bar || mode_ == Mode::plain)
    note(text);
}

}  // namespace kedge::cli
