#include "train_lm/tensors.h"

#include <ATen/ATen.h>

namespace kedge::lm {

using at::Tensor;

Tensor as_tensor(std::span<const float> values, at::IntArrayRef shape, const at::TensorOptions& options) {
  return at::tensor(c10::ArrayRef<float>(values.data(), values.size()), at::kFloat).view(shape).to(options);
}

std::vector<float> as_vector(const Tensor& tensor) {
  const Tensor flat = tensor.detach().to(at::kFloat).contiguous();
  const float* data = flat.data_ptr<float>();
  return {data, data + flat.numel()};
}

Tensor leaf(const Tensor& tensor) { return tensor.detach().clone().requires_grad_(true); }

int64_t n_elements(std::span<const Tensor> tensors) {
  int64_t n = 0;
  for (const Tensor& one : tensors)
    n += one.numel();
  return n;
}

}  // namespace kedge::lm
