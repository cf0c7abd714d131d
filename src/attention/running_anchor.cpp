#include "attention/running_anchor.h"

#include <algorithm>
#include <cmath>

#include "kernels/half.h"

namespace kedge::attention {
namespace {

constexpr float kLargest = 1024;      // in units of the scale: beyond it the scale grows
constexpr float kSmallest = 0x1p-6F;  // below it the scale shrinks; f16 keeps 11 bits from 2^-14 on

float largest_of(std::span<const float> x) {
  float largest = 0;
  for (const float value : x)
    largest = std::max(largest, std::abs(value));
  return largest;
}

double cosine(std::span<const float> a, std::span<const float> b) {
  double ab = 0;
  double aa = 0;
  double bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ab += static_cast<double>(a[i]) * b[i];
    aa += static_cast<double>(a[i]) * a[i];
    bb += static_cast<double>(b[i]) * b[i];
  }
  return aa > 0 && bb > 0 ? ab / std::sqrt(aa * bb) : 1;
}

}  // namespace

RunningAnchor::RunningAnchor(int n_heads, int head_dim, int every)
    : head_dim_(head_dim),
      every_(std::max(every, 1)),
      values_(static_cast<size_t>(n_heads) * static_cast<size_t>(head_dim), 0),
      scale_(static_cast<size_t>(n_heads), 1.0F),
      position_(static_cast<size_t>(n_heads), -1),
      drift_(static_cast<size_t>(n_heads)) {}

std::vector<float> RunningAnchor::mean(size_t head) const {
  const auto d = static_cast<size_t>(head_dim_);
  std::vector<float> out(d);
  for (size_t i = 0; i < d; ++i)
    out[i] = f16_to_f32(values_[head * d + i]) * scale_[head];
  return out;
}

// The scale changes only when the values leave its range, so that a head's rounding stays the same otherwise.
void RunningAnchor::put(size_t head, std::span<const float> mean) {
  const float largest = largest_of(mean);
  float& scale = scale_[head];
  if (largest > 0 && (largest > kLargest * scale || largest < kSmallest * scale))
    scale = std::exp2(std::ceil(std::log2(largest)));
  for (size_t i = 0; i < mean.size(); ++i)
    values_[head * mean.size() + i] = f32_to_f16(mean[i] / scale);
}

void RunningAnchor::move(size_t head, const Move& move) {
  std::vector<float> moved = mean(head);
  for (size_t i = 0; i < moved.size(); ++i)
    moved[i] += (move.newest[i] - move.oldest[i]) / static_cast<float>(move.window);
  put(head, moved);
  position_[head] = move.position;
}

void RunningAnchor::recompute(size_t head, std::span<const float> exact, int32_t position, bool is_new) {
  if (!is_new) {
    const double drift = std::max(0.0, 1 - cosine(mean(head), exact));
    AnchorDrift& counted = drift_[head];
    ++counted.recomputations;
    counted.largest = std::max(counted.largest, drift);
    counted.sum += drift;
  }
  put(head, exact);
  position_[head] = position;
}

AnchorDrift RunningAnchor::drift() const {
  AnchorDrift all;
  for (const AnchorDrift& one : drift_) {
    all.recomputations += one.recomputations;
    all.largest = std::max(all.largest, one.largest);
    all.sum += one.sum;
  }
  return all;
}

}  // namespace kedge::attention
