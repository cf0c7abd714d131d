#include "eviction/difficulty.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "eviction/window_scorer.h"

namespace kedge::eviction {
namespace {

double entropy(std::span<const float> a) {
  double sum = 0;
  for (const float weight : a) {
    if (weight <= 0)
      continue;
    sum -= static_cast<double>(weight) * std::log(static_cast<double>(weight));
  }
  const double most = std::log(static_cast<double>(a.size()));  // the few rows after the query count as seen
  return most > 0 ? sum / most : 0;
}

double lost(std::span<float> a, double min_share) {
  const auto kept = std::min(a.size(), static_cast<size_t>(std::ceil(min_share * static_cast<double>(a.size()))));
  std::nth_element(a.begin(), a.begin() + static_cast<ptrdiff_t>(kept), a.end(), std::greater<>());
  return std::accumulate(a.begin() + static_cast<ptrdiff_t>(kept), a.end(), 0.0);
}

}  // namespace

double difficulty(Difficulty measure, const HeadInput& in, double min_share) {
  const HeadInput head = last_queries(in, kDifficultyQueries);
  if (head.n_window == 0 || head.rows.n_rows == 0)
    return 1;
  const auto n_rows = static_cast<size_t>(head.rows.n_rows);
  double sum = 0;
  for_weight_batches(head, 0, head.n_window, [&](int, int, std::span<float> a) {
    for (size_t at = 0; at < a.size(); at += n_rows) {
      const std::span<float> weights = a.subspan(at, n_rows);
      sum += measure == Difficulty::entropy ? entropy(weights) : lost(weights, min_share);
    }
  });
  return std::clamp(sum / (head.n_window * head.group), 0.0, 1.0);
}

}  // namespace kedge::eviction
