// What goes to standard error: log lines, errors, progress. Standard output is for text only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kedge/error.h"

namespace kedge::cli {

// Sends log lines to standard error and, if named, appends them to a file. Error failed.
Status open_log(bool verbose, const std::string& log_file);

void note(const std::string& line);    // always shown
void detail(const std::string& line);  // with --verbose, and in the log file
void warn(const std::string& line);    // "kedge: warning: ..."
// "kedge: error: ...", one line; returns the exit code.
int report(const Error& error);
int exit_code(ErrorCode code);

bool stdin_is_terminal();
bool stdout_is_terminal();
bool stderr_is_terminal();
bool use_colour();  // a terminal, and NO_COLOR unset or empty

// How far a long piece of work is. A bar (terminal), lines at every tenth, JSON lines, or nothing.
class Progress {
 public:
  // how: auto | plain | json | none. `what`: "prompt", "window".
  Progress(std::string_view how, std::string what);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(int64_t done, int64_t total);
  // A line of running values: shown unless the mode is none or json.
  void line(const std::string& text);
  bool json() const { return mode_ == Mode::json; }

 private:
  enum class Mode { bar, plain, json, none };
  void clear_bar();

  Mode mode_;
  std::string what_;
  int64_t last_tenth_ = 0;
  bool bar_shown_ = false;
};

}  // namespace kedge::cli
