#include "statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cli/split_mix.h"

namespace kedge::report {
namespace {

constexpr int64_t kExactPairs = 16;
constexpr int64_t kDraws = 20000;
constexpr double kRounding = 1e-12;  // sums in another order differ in the last bits

// Sum of the differences where bit i of `signs` flips the i-th.
double flipped_sum(std::span<const double> differences, uint64_t signs) {
  double sum = 0;
  for (size_t i = 0; i < differences.size(); ++i)
    sum += (signs >> i & 1) != 0 ? -differences[i] : differences[i];
  return sum;
}

double exact_p(std::span<const double> differences, double limit) {
  const uint64_t n_ways = uint64_t{1} << differences.size();
  uint64_t n_far = 0;
  for (uint64_t signs = 0; signs < n_ways; ++signs)
    n_far += std::fabs(flipped_sum(differences, signs)) >= limit ? 1 : 0;
  return static_cast<double>(n_far) / static_cast<double>(n_ways);
}

double drawn_p(std::span<const double> differences, double limit, uint64_t seed) {
  int64_t n_far = 1;  // the observed signs
  for (int64_t draw = 0; draw < kDraws; ++draw) {
    double sum = 0;
    for (size_t begin = 0; begin < differences.size(); begin += 64) {
      const size_t count = std::min<size_t>(64, differences.size() - begin);
      sum += flipped_sum(differences.subspan(begin, count), cli::split_mix(seed));
    }
    n_far += std::fabs(sum) >= limit ? 1 : 0;
  }
  return static_cast<double>(n_far) / static_cast<double>(kDraws + 1);
}

}  // namespace

PairedDifference paired_difference(std::span<const double> a, std::span<const double> b, uint64_t seed) {
  std::vector<double> differences;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    differences.push_back(a[i] - b[i]);
  PairedDifference out{.n = static_cast<int64_t>(differences.size()), .mean = mean(differences)};
  if (out.n >= 2) {
    double squares = 0;
    for (const double d : differences)
      squares += (d - out.mean) * (d - out.mean);
    out.se = std::sqrt(squares / static_cast<double>(out.n - 1) / static_cast<double>(out.n));
  }
  const double limit = std::fabs(out.mean) * static_cast<double>(out.n) - kRounding;
  std::erase(differences, 0.0);  // their sign says nothing
  if (!differences.empty()) {
    const bool exact = static_cast<int64_t>(differences.size()) <= kExactPairs;
    out.p = exact ? exact_p(differences, limit) : drawn_p(differences, limit, seed);
  }
  return out;
}

std::vector<size_t> pareto_front(std::span<const CostValue> points) {
  std::vector<size_t> order(points.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t i, size_t j) {
    return points[i].cost != points[j].cost ? points[i].cost < points[j].cost : points[i].value > points[j].value;
  });
  std::vector<size_t> front;
  for (const size_t i : order) {
    if (front.empty() || points[i].value > points[front.back()].value)
      front.push_back(i);
  }
  return front;
}

}  // namespace kedge::report
