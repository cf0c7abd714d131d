#include "train_lm/pressure.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <string>

#include "eval/random.h"

namespace kedge::lm {

using at::Tensor;

Tensor logistic_noise(const Draw& draw, int layer, int64_t n, int64_t n_heads, const at::TensorOptions& options) {
  if (draw.noise == 0)
    return at::zeros({n, n_heads}, options);
  eval::Random random(draw.seed, "noise " + std::to_string(layer));
  Tensor uniform = at::empty({n, n_heads}, at::kDouble);
  double* data = uniform.data_ptr<double>();
  for (int64_t i = 0; i < n * n_heads; ++i)
    data[i] = (static_cast<double>(random.next() >> 12) + 0.5) * 0x1p-52;
  return (uniform.log() - (1 - uniform).log()).mul_(draw.noise).to(options);
}

Tensor keep_of(const Tensor& moved, const Draw& draw) {
  const Tensor soft = at::sigmoid(moved / draw.tau);
  if (draw.anneal == 0)
    return soft;
  const Tensor hard = at::gt(moved, 0).to(soft.options());
  return soft + ((hard - soft) * draw.anneal).detach();
}

double shift_for(const Tensor& noisy, const Draw& draw) {
  constexpr int kHalvings = 48;
  const c10::NoGradGuard frozen;
  if (noisy.numel() == 0)
    return 0;
  // Beyond these every row is kept, or none.
  const double room = 40 * std::max(draw.tau, 1.0);
  double low = -noisy.max().item<double>() - room;
  double high = -noisy.min().item<double>() + room;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    (at::mean(keep_of(noisy + middle, draw)).item<double>() < draw.keep ? low : high) = middle;
  }
  return high;
}

Tensor shift_weights(const Tensor& noisy, double shift, const Draw& draw) {
  const c10::NoGradGuard frozen;
  const Tensor open = at::sigmoid((noisy + shift) / draw.tau);
  const Tensor slope = open * (1 - open);
  return slope / slope.sum().clamp_min(1e-30);
}

}  // namespace kedge::lm
