// Means and how sure one may be of them. Resampling is seeded and portable: the same values give the same interval on
// any machine.
#pragma once

#include <cstdint>
#include <span>

namespace kedge::eval {

struct Estimate {
  double mean = 0;
  double se = 0;  // standard deviation of the resampled means; 0 for fewer than two values
  double lo = 0;  // 2.5 % and 97.5 % quantile of the resampled means
  double hi = 0;
  int64_t n = 0;
};

inline constexpr int kResamples = 2000;

// Bootstrap of the mean (Efron 1979): kResamples resamples of the values with replacement.
Estimate bootstrap_mean(std::span<const double> values, uint64_t seed);

}  // namespace kedge::eval
