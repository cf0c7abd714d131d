// Writes a GGUF file: keys, then tensors. What GgufFile reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kedge/error.h"

namespace kedge::tensor {

enum class StoredAs { f32, q8_0 };

class GgufWriter {
 public:
  GgufWriter();
  ~GgufWriter();

  void text(const std::string& key, const std::string& value);
  void number(const std::string& key, uint32_t value);
  void real(const std::string& key, float value);
  // f32 [rows][cols]; rows = 0: a vector [cols]. q8_0 needs whole blocks of 32 columns: others are stored as f32.
  void tensor(const std::string& name, std::span<const float> values, int64_t rows, int64_t cols,
              StoredAs type = StoredAs::f32);

  std::vector<std::byte> bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kedge::tensor
