// What a model's graph calls for attention: it hands q, k, v after RoPE and gets the heads' outputs back.
// The port appends K and V to whoever owns the rows, attends, and takes the observations that scorers asked for.
#pragma once

#include "tensor/compute.h"

namespace kedge::attention {

// What a layer's new rows were made of, for learned gates. All f32 [n, ...].
struct RowOrigin {
  tensor::Tensor hidden = nullptr;  // the layer's normed input [n_embd]
  tensor::Tensor key = nullptr;     // before its rotation [n_kv_heads * head_dim]
  tensor::Tensor value = nullptr;   // [n_kv_heads * head_dim]
};

class AttentionPort {
 public:
  virtual ~AttentionPort() = default;
  // q [n, n_heads * head_dim], k and v [n, n_kv_heads * head_dim], all f32 contiguous; what the origin holds
  // may be ignored. Returns y [n, n_heads * head_dim].
  virtual tensor::Tensor attend(tensor::Graph& graph, int layer, tensor::Tensor q, tensor::Tensor k, tensor::Tensor v,
                                const RowOrigin& origin) = 0;
};

}  // namespace kedge::attention
