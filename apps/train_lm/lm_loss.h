// The language-model loss of some positions and its gradient, without ever holding all their logits.
#pragma once

#include <ATen/Tensor.h>

#include "train_lm/frozen_model.h"

namespace kedge::lm {

struct LossTarget {
  at::Tensor weight;  // [n], sum 1: how much each position counts
  int64_t first = 0;  // positions before weigh nothing
  // One of the two:
  at::Tensor full;  // [n, n_embd]: what the full cache gives the output matrix; loss: KL(full || gated)
  at::Tensor next;  // i64 [n]: the token that follows; loss: its cross-entropy
};

struct Loss {
  double value = 0;
  at::Tensor by_hidden;  // [n, n_embd]; undefined where no gradient was asked for
};

// hidden [n, n_embd]: what the output matrix is multiplied with.
Loss lm_loss(const FrozenModel& model, const at::Tensor& hidden, const LossTarget& target, bool with_gradient);

}  // namespace kedge::lm
