// What the parts of the trainer share.
#pragma once

#include <ATen/Tensor.h>

#include <span>
#include <vector>

#include "kedge/model.h"
#include "train/plan.h"
#include "train_lm/course.h"
#include "train_lm/pressure.h"

namespace kedge::lm {

at::Tensor as_tensor(std::span<const Token> tokens);  // i64 [n]

// All tensors in a row, f32; and back: false where there are more or fewer values.
std::vector<float> flat(std::span<const at::Tensor> tensors);
bool unflatten(std::span<const float> values, std::vector<at::Tensor>& tensors);

// `most` of the windows, as far apart as they are many.
std::vector<train::Window> spread(std::span<const train::Window> windows, size_t most);

Draw draw_of(const StepPlan& plan);

}  // namespace kedge::lm
