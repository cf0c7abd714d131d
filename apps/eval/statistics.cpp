#include "eval/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cli/kl.h"
#include "eval/random.h"

namespace kedge::eval {

Estimate bootstrap_mean(std::span<const double> values, uint64_t seed) {
  Estimate out{.n = static_cast<int64_t>(values.size())};
  if (values.empty())
    return out;
  const auto n = static_cast<double>(values.size());
  out.mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  out.lo = out.hi = out.mean;
  if (values.size() < 2)
    return out;
  Random random(seed, "bootstrap");
  std::vector<double> means(kResamples);
  for (double& mean : means) {
    double sum = 0;
    for (size_t i = 0; i < values.size(); ++i)
      sum += values[static_cast<size_t>(random.below(static_cast<int64_t>(values.size())))];
    mean = sum / n;
  }
  const double centre = std::accumulate(means.begin(), means.end(), 0.0) / kResamples;
  double squares = 0;
  for (const double mean : means)
    squares += (mean - centre) * (mean - centre);
  out.se = std::sqrt(squares / (kResamples - 1));
  out.lo = cli::quantile(means, 0.025);
  out.hi = cli::quantile(std::move(means), 0.975);
  return out;
}

}  // namespace kedge::eval
