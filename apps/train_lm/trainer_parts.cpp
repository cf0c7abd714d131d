#include "train_lm/trainer_parts.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace kedge::lm {

using at::Tensor;

Tensor as_tensor(std::span<const Token> tokens) {
  Tensor out = at::empty({static_cast<int64_t>(tokens.size())}, at::kLong);
  std::ranges::copy(tokens, out.data_ptr<int64_t>());
  return out;
}

std::vector<float> flat(std::span<const Tensor> tensors) {
  std::vector<float> out;
  for (const Tensor& one : tensors) {
    const Tensor data = one.detach().contiguous();
    out.insert(out.end(), data.data_ptr<float>(), data.data_ptr<float>() + data.numel());
  }
  return out;
}

bool unflatten(std::span<const float> values, std::vector<Tensor>& tensors) {
  for (Tensor& one : tensors) {
    Tensor data = one.detach();
    const auto n = static_cast<size_t>(data.numel());
    if (values.size() < n)
      return false;
    std::copy_n(values.begin(), n, data.data_ptr<float>());
    values = values.subspan(n);
  }
  return values.empty();
}

std::vector<train::Window> spread(std::span<const train::Window> windows, size_t most) {
  std::vector<train::Window> out;
  const size_t n = std::min(most, windows.size());
  for (size_t i = 0; i < n; ++i)
    out.push_back(windows[i * windows.size() / n]);
  return out;
}

Draw draw_of(const StepPlan& plan) {
  return {.keep = plan.keep, .tau = plan.tau, .anneal = plan.anneal, .noise = 1 - plan.anneal, .seed = plan.seed};
}

}  // namespace kedge::lm
