// The features of an ageing stage (src/gate/ageing.h) as tensors, of a text that was read with the full cache up to a
// cut: what eviction/ageing.h measures there.
#pragma once

#include <ATen/Tensor.h>

#include "gate/ageing.h"
#include "kedge/error.h"
#include "train_lm/frozen_model.h"

namespace kedge::lm {

// Error usage: names a feature that needs what only a session records.
Status can_learn(const gate::AgeingInfo& info);

struct AtCut {
  at::Tensor q;       // [info.window, n_heads, head_dim] of the last tokens before the cut, scaled and rotated
  at::Tensor k, v;    // [cut, n_kv_heads, head_dim], rotated
  at::Tensor logits;  // [cut, n_kv_heads] of the append stage; undefined where it is not asked for
};
// Of rows [begin, end): [end - begin, n_kv_heads, n_features], in the order of info. No gradients.
at::Tensor late_features(const AtCut& at, const gate::AgeingInfo& info, int64_t begin, int64_t end);

}  // namespace kedge::lm
