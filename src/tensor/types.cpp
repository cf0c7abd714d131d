#include "tensor/types.h"

#include <ggml-cpu.h>
#include <ggml.h>

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

}  // namespace kedge::tensor
