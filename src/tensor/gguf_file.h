// A GGUF file with every field checked: opening any byte string gives a clean error or a safe view, never a crash.
// Types are checked before any typed getter (gguf.h aborts otherwise); every tensor's offset and size lie in the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kedge/error.h"

struct ggml_tensor;

namespace kedge::tensor {

struct TensorInfo {
  std::string name;
  int type = 0;  // ggml_type
  int n_dims = 0;
  int64_t ne[4] = {1, 1, 1, 1};
  const std::byte* data = nullptr;  // in the mapping
  int64_t n_bytes = 0;
};

class GgufFile {
 public:
  // Maps the file read-only. Errors (model_unreadable): name the key or tensor, what was found, what is allowed.
  static Result<std::unique_ptr<GgufFile>> open(const std::string& path);
  // The same over memory that outlives the file (tests, fuzzing). `name` stands for the path in errors.
  static Result<std::unique_ptr<GgufFile>> open_bytes(std::span<const std::byte> bytes, const std::string& name);
  ~GgufFile();

  const std::string& path() const;
  int64_t file_bytes() const;
  std::span<const std::byte> bytes() const;  // the whole file
  // The tensor's pages need not stay in memory for this process: they are read again if they are used.
  void release(const TensorInfo& tensor) const;

  bool has(std::string_view key) const;
  // Typed reads: missing key or another type is an error naming the key. *_or: default when missing, error on a wrong
  // type.
  Result<uint32_t> get_u32(std::string_view key) const;  // accepts any integer type whose value fits
  Result<uint32_t> get_u32_or(std::string_view key, uint32_t fallback) const;
  Result<float> get_f32(std::string_view key) const;  // accepts f32 and f64, finite only
  Result<float> get_f32_or(std::string_view key, float fallback) const;
  Result<bool> get_bool_or(std::string_view key, bool fallback) const;
  Result<std::string> get_string(std::string_view key) const;
  Result<std::string> get_string_or(std::string_view key, std::string fallback) const;
  Result<int64_t> array_length(std::string_view key) const;

  const std::vector<TensorInfo>& tensors() const;
  const TensorInfo* find(std::string_view name) const;  // nullptr when absent
  // The tensor, with the shape it must have ({0} as a size = any). Error names the tensor, what was found, what is
  // allowed.
  Result<const TensorInfo*> require(std::string_view name, std::vector<int64_t> ne) const;

 private:
  GgufFile();
  static Result<std::unique_ptr<GgufFile>> from_bytes(std::span<const std::byte> bytes, const std::string& name,
                                                      bool mapped);
  Error missing(std::string_view key) const;
  Error wrong(std::string_view key, const std::string& allowed) const;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kedge::tensor
