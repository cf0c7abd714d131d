// A small product with its bias, and its activation, as one node. ggml's own three nodes are each a start of all
// threads and a barrier: for a matrix of some ten thousand weights and one row that is most of their time.
#pragma once

#include "tensor/compute.h"

namespace kedge::tensor {

// Custom node: dst f32 [n, out] = act(weight x + bias) <- src: x f32 [n, in], weight [out, in] of any type with a dot
// product, bias f32 [out]. Sums are those of ggml's product of one row. user: nullptr for none, else gelu, by erf.
void affine_node(ggml_tensor* dst, int ith, int nth, void* user);

}  // namespace kedge::tensor
