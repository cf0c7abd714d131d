// What a model's graph calls for attention: it hands q, k, v after RoPE and gets the heads' outputs back.
// The port appends K and V to whoever owns the rows, attends, and takes the observations that scorers asked for.
#pragma once

#include "tensor/compute.h"

namespace kedge::attention {

class AttentionPort {
 public:
  virtual ~AttentionPort() = default;
  // q [n, n_heads * head_dim], k and v [n, n_kv_heads * head_dim], all f32 contiguous; x_normed: the layer's normed
  // input (for learned gates; may be ignored). Returns y [n, n_heads * head_dim].
  virtual tensor::Tensor attend(tensor::Graph& graph, int layer, tensor::Tensor q, tensor::Tensor k, tensor::Tensor v,
                                tensor::Tensor x_normed) = 0;
};

}  // namespace kedge::attention
