#include "tensor/types.h"

#include <ggml-cpu.h>
#include <ggml.h>

#include <cstring>

#include "base/check.h"

namespace kedge::tensor {

std::string type_name(int type) {
  return type >= 0 && type < GGML_TYPE_COUNT ? ggml_type_name(static_cast<ggml_type>(type))
                                             : "type " + std::to_string(type);
}
bool is_f32(int type) { return type == GGML_TYPE_F32; }
bool can_multiply(int type) {
  return type >= 0 && type < GGML_TYPE_COUNT && can_get_rows(type) &&
         ggml_get_type_traits_cpu(static_cast<ggml_type>(type))->vec_dot != nullptr;
}
bool can_get_rows(int type) {
  return type == GGML_TYPE_F32 || (type >= 0 && type < GGML_TYPE_COUNT &&
                                   ggml_get_type_traits(static_cast<ggml_type>(type))->to_float != nullptr);
}

void row_to_f32(int type, const std::byte* row, std::span<float> out) {
  check(can_get_rows(type), "the type has rows that can be read");
  if (is_f32(type)) {
    std::memcpy(out.data(), row, out.size_bytes());
    return;
  }
  ggml_get_type_traits(static_cast<ggml_type>(type))->to_float(row, out.data(), static_cast<int64_t>(out.size()));
}

void rows_to_f32(int type, int64_t n_cols, const std::byte* first, std::span<float> out) {
  const auto cols = static_cast<size_t>(n_cols);
  for (size_t at = 0; at < out.size(); at += cols, first += row_bytes(type, n_cols))
    row_to_f32(type, first, out.subspan(at, cols));
}

size_t row_bytes(int type, int64_t n) { return ggml_row_size(static_cast<ggml_type>(type), n); }

}  // namespace kedge::tensor
