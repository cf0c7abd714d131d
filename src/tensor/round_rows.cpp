#include "tensor/round_rows.h"

#include <ggml-cpu.h>
#include <ggml.h>

#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/executor.h"
#include "base/thread_order.h"

namespace kedge::tensor {
namespace {

// Where a block of an activation type keeps its scale and its int8 values. The layouts are part of ggml's file format.
struct BlockLayout {
  int64_t values;      // int8 values of a block
  size_t values_at;    // bytes from the block's start
  bool is_half_scale;  // the scale, at the block's start: f16, else f32
};

BlockLayout layout_of(int type) {
  switch (type) {
    case GGML_TYPE_Q8_0:
      return {.values = 32, .values_at = 2, .is_half_scale = true};  // f16 d, i8[32]
    case GGML_TYPE_Q8_1:
      return {.values = 32, .values_at = 4, .is_half_scale = true};  // f16 d, f16 sum, i8[32]
    default:
      return {.values = 256, .values_at = 4, .is_half_scale = false};  // q8_K: f32 d, i8[256], i16 sums[16]
  }
}

}  // namespace

int activation_type(int weight_type) {
  const ggml_type type = ggml_get_type_traits_cpu(static_cast<ggml_type>(weight_type))->vec_dot_type;
  const bool is_known = type == GGML_TYPE_Q8_0 || type == GGML_TYPE_Q8_1 || type == GGML_TYPE_Q8_K;
  return ggml_is_quantized(static_cast<ggml_type>(weight_type)) && is_known ? static_cast<int>(type) : -1;
}

void round_row(int type, const float* x, float* out, int64_t n) {
  const BlockLayout layout = layout_of(type);
  const auto ggml = static_cast<ggml_type>(type);
  check(n % layout.values == 0, "a row is whole blocks long");
  thread_local std::vector<unsigned char> packed;
  packed.resize(ggml_row_size(ggml, n));
  ggml_get_type_traits_cpu(ggml)->from_float(x, packed.data(), n);
  const size_t block_bytes = ggml_type_size(ggml);
  for (int64_t b = 0; b < n / layout.values; ++b) {
    const unsigned char* block = packed.data() + static_cast<size_t>(b) * block_bytes;
    float scale = 0;
    if (layout.is_half_scale) {
      ggml_fp16_t half;
      std::memcpy(&half, block, sizeof(half));
      scale = ggml_fp16_to_fp32(half);
    } else {
      std::memcpy(&scale, block, sizeof(scale));
    }
    const auto* values = reinterpret_cast<const int8_t*>(block + layout.values_at);
    for (int64_t i = 0; i < layout.values; ++i)
      out[b * layout.values + i] = scale * static_cast<float>(values[i]);
  }
}

void round_rows_node(ggml_tensor* dst, int ith, int nth, void* user) {
  const BetweenBarriers order;
  const ggml_tensor* src = dst->src[0];
  const Share rows = share_of(src->ne[1], ith, nth);
  for (long r = rows.begin; r < rows.end; ++r) {
    round_row(*static_cast<const int*>(user),
              reinterpret_cast<const float*>(static_cast<const char*>(src->data) + r * src->nb[1]),
              reinterpret_cast<float*>(static_cast<char*>(dst->data) + r * dst->nb[1]), src->ne[0]);
  }
}

}  // namespace kedge::tensor
