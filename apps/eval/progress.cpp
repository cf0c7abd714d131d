#include "eval/progress.h"

#include <cmath>
#include <cstdio>

#include "cli/console.h"

namespace kedge::eval {
namespace {

constexpr double kPlainSeconds = 5;  // between two lines
constexpr double kBarSeconds = 0.1;

std::string result_text(const CellRecord& record) {
  if (record.rows.empty())
    return "";
  double score = 0;
  int n = 0;
  char buffer[64] = "";
  for (const Row& row : record.rows) {
    if (!row.error.empty())
      return "error";
    if (row.kld_mean) {
      std::snprintf(buffer, sizeof buffer, "KLD %.4f", *row.kld_mean);
      return buffer;
    }
    score += row.score.value_or(0);
    ++n;
  }
  std::snprintf(buffer, sizeof buffer, "score %.2f", score / n);
  return buffer;
}

}  // namespace

std::string duration_text(double seconds) {
  const auto whole = static_cast<long>(std::ceil(seconds));
  if (whole < 60)
    return std::to_string(whole) + " s";
  if (whole < 3600)
    return std::to_string(whole / 60) + " min " + std::to_string(whole % 60) + " s";
  return std::to_string(whole / 3600) + " h " + std::to_string(whole % 3600 / 60) + " min";
}

std::string progress_text(const CellRecord& record, int64_t done, int64_t total, double seconds_left) {
  std::string text = std::to_string(done) + "/" + std::to_string(total);
  if (!record.rows.empty()) {
    const Row& row = record.rows.front();
    text += " " + row.sample + " " + row.policy + " " + row.budget + ": " + result_text(record);
  }
  return text + (done < total ? "; " + duration_text(seconds_left) + " left" : "");
}

RunProgress::RunProgress(std::string_view how) : mode_(Mode::plain) {
  if (how == "none")
    mode_ = Mode::none;
  else if (how == "json")
    mode_ = Mode::json;
  else if (how == "auto" && cli::stderr_is_terminal())
    mode_ = Mode::bar;
}

RunProgress::~RunProgress() {
  if (bar_shown_)
    std::fprintf(stderr, "\r\x1b[K");
}

void RunProgress::cell(const CellRecord& record, int64_t done, int64_t total) {
  const double now = since_start_.seconds();
  const double left = now / static_cast<double>(done) * static_cast<double>(total - done);
  if (mode_ == Mode::none)
    return;
  if (mode_ == Mode::json) {
    const Json line = {
        {"event", "cell"}, {"cell", record.cell}, {"done", done}, {"total", total}, {"seconds_left", left}};
    std::fprintf(stderr, "%s\n", to_line(line).c_str());
    return;
  }
  if (now - last_shown_ < (mode_ == Mode::bar ? kBarSeconds : kPlainSeconds) && done < total)
    return;
  last_shown_ = now;
  const std::string text = progress_text(record, done, total, left);
  if (mode_ == Mode::plain) {
    cli::note(text);
    return;
  }
  std::fprintf(stderr, "\r\x1b[K%.100s", text.c_str());
  std::fflush(stderr);
  bar_shown_ = true;
}

}  // namespace kedge::eval
