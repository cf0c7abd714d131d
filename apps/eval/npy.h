// Matrices as NumPy reads them (format 1.0: NEP 1).
#pragma once

#include <span>
#include <string>

#include "kedge/error.h"

namespace kedge::eval {

// f32 [n_rows, n_columns], row-major, little-endian. Error failed.
Status write_npy(const std::string& path, std::span<const float> values, size_t n_rows, size_t n_columns);

// A cell's key as a file name: what is no letter, digit, dot, dash or underscore becomes an underscore.
std::string file_name(const std::string& key);

}  // namespace kedge::eval
