// Questions about ggml's element types, for folders that do not include ggml's headers.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace kedge::tensor {

std::string type_name(int type);  // "f32", "q4_1", ...
bool is_f32(int type);
bool can_multiply(int type);  // the CPU backend multiplies matrices of this type with f32 rows
bool can_get_rows(int type);  // rows of it can be read as f32
// out := one row as f32; `row` holds out.size() elements of a type with can_get_rows() (checked).
void row_to_f32(int type, const std::byte* row, std::span<float> out);
// The same for rows of n_cols elements, one behind the other: as many as `out` holds.
void rows_to_f32(int type, int64_t n_cols, const std::byte* first, std::span<float> out);
size_t row_bytes(int type, int64_t n);  // of n elements

}  // namespace kedge::tensor
