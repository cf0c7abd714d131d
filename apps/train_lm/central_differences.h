// For tests: gradients against central differences, in f64.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

namespace kedge::lm {

// parameters: the leaves themselves, moved and put back; loss: with the parameters as they are.
inline void expect_central_differences(std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& gradients,
                                       const std::function<double()>& loss) {
  constexpr double kStep = 1e-4;
  for (size_t i = 0; i < gradients.size(); ++i) {
    // Along the gradient itself, and by its largest element: every tensor, with no cancellation of small numbers.
    at::Tensor& parameter = parameters[i];
    const double norm = gradients[i].norm().item<double>();
    ASSERT_GT(norm, 1e-9) << "tensor " << i << " matters";
    const int64_t largest = gradients[i].abs().argmax().item<int64_t>();
    at::Tensor single = at::zeros_like(gradients[i]);
    single.view({-1})[largest] = 1;
    for (const at::Tensor& direction : {gradients[i] / norm, single}) {
      const double expected = (gradients[i] * direction).sum().item<double>();
      const at::Tensor before = parameter.detach().clone();
      parameter.detach().add_(direction, kStep);
      const double above = loss();
      parameter.detach().copy_(before).add_(direction, -kStep);
      const double below = loss();
      parameter.detach().copy_(before);
      EXPECT_NEAR((above - below) / (2 * kStep), expected, 1e-4 * std::abs(expected)) << "tensor " << i;
    }
  }
}

}  // namespace kedge::lm
