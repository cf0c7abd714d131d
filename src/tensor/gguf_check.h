// Walks the header of a GGUF file with every read bounded, before ggml's own reader sees a byte of it.
// What passes here cannot make gguf.h or libllama's loader read outside the file, allocate beyond it or abort.
//
//   magic "GGUF" | version u32 | n_tensors i64 | n_kv i64 | n_kv x (key, type, value) | n_tensors x (name, n_dims,
//   ne[n_dims] i64, type i32, offset u64) | padding to general.alignment | tensor data, each tensor padded likewise
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kedge/error.h"

namespace kedge::tensor {

// ggml compares key with key and name with name, and real files stay far below these.
inline constexpr int64_t kMaxKeys = 65536;
inline constexpr int64_t kMaxTensors = 65536;

struct GgufLayout {
  struct TensorEntry {
    std::string name;
    int type = 0;  // ggml_type
    int n_dims = 0;
    int64_t ne[4] = {1, 1, 1, 1};
    int64_t offset = 0;   // in the file
    int64_t n_bytes = 0;  // offset + n_bytes <= the file's size
  };
  std::vector<TensorEntry> tensors;
  int64_t data_offset = 0;
};

// Error model_unreadable, one line: "<name>: <key, tensor or field>: <what was found>, <what is allowed>".
Result<GgufLayout> check_gguf(std::span<const std::byte> bytes, const std::string& name);

}  // namespace kedge::tensor
