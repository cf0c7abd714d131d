// How long tokens took: a histogram in steps of 2 %, so that a run of any length costs the same few kilobytes.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

namespace kedge::session {

class TokenTimes {
 public:
  void add(double ms) {
    ++counts_[static_cast<size_t>(bin(ms))];
    ++n_;
    max_ms_ = std::max(max_ms_, ms);
  }
  int64_t n() const { return n_; }
  double max_ms() const { return max_ms_; }
  // The time that a share q of the tokens took at most, within 1 %; 0 without tokens.
  double quantile_ms(double q) const {
    const auto wanted = std::max<int64_t>(1, static_cast<int64_t>(std::ceil(q * static_cast<double>(n_))));
    int64_t seen = 0;
    for (int i = 0; i < kBins && n_ > 0; ++i) {
      seen += counts_[static_cast<size_t>(i)];
      if (seen >= wanted)
        return std::min(max_ms_, kLeastMs * std::pow(kStep, i + 0.5));
    }
    return 0;
  }

 private:
  static constexpr double kLeastMs = 1e-3;
  static constexpr double kStep = 1.02;
  static constexpr int kBins = 1164;  // up to 1e7 ms
  static int bin(double ms) {
    return ms <= kLeastMs ? 0 : std::min(kBins - 1, static_cast<int>(std::log(ms / kLeastMs) / std::log(kStep)));
  }

  std::array<int64_t, kBins> counts_{};
  int64_t n_ = 0;
  double max_ms_ = 0;
};

}  // namespace kedge::session
