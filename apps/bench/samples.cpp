#include "bench/samples.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace kedge::bench {

double stddev(std::span<const double> values) {
  if (values.size() < 2)
    return 0;
  const double middle = mean(values);
  double squares = 0;
  for (const double value : values)
    squares += (value - middle) * (value - middle);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

double median(std::span<const double> values) {
  if (values.empty())
    return 0;
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

double smallest(std::span<const double> values) {
  return values.empty() ? 0 : *std::min_element(values.begin(), values.end());
}

double largest(std::span<const double> values) {
  return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}

}  // namespace kedge::bench
