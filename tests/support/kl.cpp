#include "support/kl.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace kedge::test {
namespace {

double log_sum_exp(std::span<const float> x) {
  const double top = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (float v : x)
    sum += std::exp(static_cast<double>(v) - top);
  return top + std::log(sum);
}

}  // namespace

double kl_divergence(std::span<const float> reference, std::span<const float> other) {
  if (reference.size() != other.size() || reference.empty())
    std::abort();
  const double lr = log_sum_exp(reference);
  const double lo = log_sum_exp(other);
  double sum = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double log_p = static_cast<double>(reference[i]) - lr;
    sum += std::exp(log_p) * (log_p - (static_cast<double>(other[i]) - lo));
  }
  return sum;
}

int32_t argmax(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

void Divergence::add(std::span<const float> reference, std::span<const float> other) {
  const double kld = kl_divergence(reference, other);
  n_ += 1;
  sum_ += kld;
  // A NaN must not hide: max() would drop it.
  max_ = std::isnan(kld) ? kld : std::max(max_, kld);
  same_ += argmax(reference) == argmax(other) ? 1 : 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double d = std::abs(static_cast<double>(reference[i]) - static_cast<double>(other[i]));
    max_abs_ = d <= max_abs_ ? max_abs_ : d;
  }
}

}  // namespace kedge::test
