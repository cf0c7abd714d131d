// Questions about ggml's element types, for folders that do not include ggml's headers.
#pragma once

#include <string>

namespace kedge::tensor {

std::string type_name(int type);  // "f32", "q4_1", ...
bool is_f32(int type);
bool can_multiply(int type);  // the CPU backend multiplies matrices of this type with f32 rows
bool can_get_rows(int type);  // rows of it can be read as f32

}  // namespace kedge::tensor
