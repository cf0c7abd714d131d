// How far a run is, on standard error: the last cell's result and the time left.
#pragma once

#include <string>
#include <string_view>

#include "base/clock.h"
#include "eval/records.h"

namespace kedge::eval {

// "37/510 needle-1024-d50-0 andpro 25%: score 1.00; 3 min 20 s left"
std::string progress_text(const CellRecord& record, int64_t done, int64_t total, double seconds_left);
std::string duration_text(double seconds);  // "3 min 20 s"

class RunProgress {
 public:
  explicit RunProgress(std::string_view how);  // auto | plain | json | none
  ~RunProgress();
  void cell(const CellRecord& record, int64_t done, int64_t total);

 private:
  enum class Mode { bar, plain, json, none };
  Mode mode_;
  Stopwatch since_start_;
  double last_shown_ = -1e9;
  bool bar_shown_ = false;
};

}  // namespace kedge::eval
