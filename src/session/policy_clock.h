// The time limit of an eviction: every layer gets its part, and a policy that has been too slow for it so far does not
// begin. Measured time decides, so a run with a limit need not repeat itself.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "eviction/policy.h"

namespace kedge::session {

class PolicyClock {
 public:
  PolicyClock() = default;
  PolicyClock(double limit_ms, int n_layers) : limit_ms_(limit_ms), n_layers_(n_layers) {}

  bool is_limited() const { return limit_ms_ > 0; }
  // Nothing is known of the policy's speed yet, or it has been held back so often that what is known may be old.
  bool wants_sample() const { return is_limited() && (of(eviction::Scoring::all) <= 0 || held_back_ >= kSampleAgain); }
  // The policy took this long for so many rows.
  void measured(eviction::Scoring scoring, double ms, int64_t n_rows) {
    if (n_rows <= 0)
      return;
    ms_per_row_[static_cast<size_t>(scoring)] = ms / static_cast<double>(n_rows);
    held_back_ = 0;
  }
  // What has not been done yet is taken for as slow as a scoring of all rows.
  double predicted_ms(eviction::Scoring scoring, int64_t n_rows) const {
    return (of(scoring) > 0 ? of(scoring) : of(eviction::Scoring::all)) * static_cast<double>(n_rows);
  }
  // Whether a layer of so many rows has to do without the policy; counts what it holds back.
  bool holds_back(eviction::Scoring scoring, int64_t n_rows) {
    if (!is_limited() || predicted_ms(scoring, n_rows) <= limit_ms_ / n_layers_)
      return false;
    ++held_back_;
    return true;
  }

 private:
  double of(eviction::Scoring scoring) const { return ms_per_row_[static_cast<size_t>(scoring)]; }
  static constexpr int kSampleAgain = 256;  // layers: a sample costs some 64 rows

  double limit_ms_ = 0;
  int n_layers_ = 1;
  std::array<double, 3> ms_per_row_{};  // by Scoring; 0: not known
  int held_back_ = 0;
};

}  // namespace kedge::session
