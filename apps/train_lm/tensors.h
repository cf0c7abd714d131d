// Tensors of what learns, from numbers and back.
#pragma once

#include <ATen/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace kedge::lm {

at::Tensor as_tensor(std::span<const float> values, at::IntArrayRef shape, const at::TensorOptions& options);
std::vector<float> as_vector(const at::Tensor& tensor);  // f32, row by row
at::Tensor leaf(const at::Tensor& tensor);               // a copy that learns
int64_t n_elements(std::span<const at::Tensor> tensors);

}  // namespace kedge::lm
