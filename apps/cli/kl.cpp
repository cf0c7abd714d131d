#include "kl.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace kedge::cli {
namespace {

double log_sum_exp(std::span<const float> logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits)
    sum += std::exp(logit - top);
  return top + std::log(sum);
}

}  // namespace

double negative_log_likelihood(std::span<const float> logits, int token) {
  check(token >= 0 && static_cast<size_t>(token) < logits.size(), "token inside the vocabulary");
  return log_sum_exp(logits) - static_cast<double>(logits[static_cast<size_t>(token)]);
}

Comparison compare(std::span<const float> full, std::span<const float> other, int token) {
  check(full.size() == other.size() && !full.empty(), "two rows of one vocabulary");
  check(token >= 0 && static_cast<size_t>(token) < full.size(), "token inside the vocabulary");
  const double full_sum = log_sum_exp(full);
  const double other_sum = log_sum_exp(other);
  Comparison result;
  result.nll = other_sum - static_cast<double>(other[static_cast<size_t>(token)]);
  result.full_nll = full_sum - static_cast<double>(full[static_cast<size_t>(token)]);
  for (size_t i = 0; i < full.size(); ++i) {
    const double log_p = full[i] - full_sum;
    const double log_q = other[i] - other_sum;
    const double p = std::exp(log_p);
    if (p > 0)
      result.kld += p * (log_p - log_q);
  }
  const auto top = [](std::span<const float> row) { return std::max_element(row.begin(), row.end()) - row.begin(); };
  result.same_top = top(full) == top(other);
  return result;
}

double mean(std::span<const double> values) {
  double sum = 0;
  for (const double value : values)
    sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

std::optional<double> standard_error(std::span<const double> values) {
  if (values.size() < 2)
    return std::nullopt;
  const double centre = mean(values);
  double squares = 0;
  for (const double value : values)
    squares += (value - centre) * (value - centre);
  const auto n = static_cast<double>(values.size());
  return std::sqrt(squares / (n - 1) / n);
}

double quantile(std::vector<double> values, double q) {
  if (values.empty())
    return 0;
  std::sort(values.begin(), values.end());
  const double at = q * static_cast<double>(values.size() - 1);
  const auto low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (at - static_cast<double>(low)) * (values[high] - values[low]);
}

}  // namespace kedge::cli
