#include "tensor/affine.h"

#include <ggml-cpu.h>
#include <ggml.h>

#include <cmath>
#include <cstddef>
#include <vector>

#include "base/executor.h"
#include "base/thread_order.h"

namespace kedge::tensor {
namespace {

// Row r of a contiguous tensor, of any type.
const char* row_of(const ggml_tensor* t, long r) { return static_cast<const char*>(t->data) + r * t->nb[1]; }

}  // namespace

void affine_node(ggml_tensor* dst, int ith, int nth, void* user) {
  const BetweenBarriers order;
  const ggml_tensor* x = dst->src[0];
  const ggml_tensor* weight = dst->src[1];
  const auto* bias = static_cast<const float*>(dst->src[2]->data);
  const ggml_type_traits_cpu* traits = ggml_get_type_traits_cpu(weight->type);
  const auto n_in = static_cast<int>(x->ne[0]);
  const bool packs = traits->vec_dot_type != GGML_TYPE_F32;
  thread_local std::vector<std::byte> packed;  // x as the weight's dot product reads it
  packed.resize(packs ? ggml_row_size(traits->vec_dot_type, n_in) : 0);
  const Share units = share_of(weight->ne[1], ith, nth);
  for (long r = 0; r < x->ne[1]; ++r) {
    const void* row = row_of(x, r);
    if (packs) {
      ggml_get_type_traits_cpu(traits->vec_dot_type)->from_float(static_cast<const float*>(row), packed.data(), n_in);
      row = packed.data();
    }
    float* out = static_cast<float*>(dst->data) + r * dst->ne[0];
    for (long unit = units.begin; unit < units.end; ++unit) {
      float sum = 0;
      traits->vec_dot(n_in, &sum, 0, row_of(weight, unit), 0, row, 0, 1);
      sum += bias[unit];
      out[unit] = user == nullptr ? sum : 0.5F * sum * (1 + std::erf(sum * 0.70710678F));
    }
  }
}

}  // namespace kedge::tensor
