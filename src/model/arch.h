// What a file of archs/ defines and what helps it to: one function load_NAME, found by the build through the file's
// name.
#pragma once

#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kedge/error.h"
#include "model/model.h"

namespace kedge::model {

// What load_model has made of the file before the architecture sees it; the loader takes what it needs.
struct ArchInput {
  std::unique_ptr<tensor::GgufFile> file;
  tensor::Compute& compute;
  tensor::WeightOptions options;
};

using ArchLoader = Result<std::unique_ptr<Model>>(ArchInput input);

struct ArchEntry {
  const char* name;  // GGUF's general.architecture
  ArchLoader* load;
};
std::span<const ArchEntry> arch_list();  // sorted by name

// Reads the keys of one architecture ("llama.block_count" for key "block_count") and remembers the first error, so that
// a loader reads all it needs in a row and asks once.
class KeyReader {
 public:
  KeyReader(const tensor::GgufFile& file, std::string architecture)
      : file_(file), prefix_(std::move(architecture) + ".") {}

  int required(std::string_view key, int64_t min, int64_t max);
  int optional(std::string_view key, int64_t fallback, int64_t min, int64_t max);
  float required_f32(std::string_view key, float min, float max);
  float optional_f32(std::string_view key, float fallback, float min, float max);
  std::string optional_string(std::string_view key, std::string fallback);
  // Reports `why` unless an error is already known. The key is named in full.
  void refuse(std::string_view key, const std::string& found, const std::string& allowed);
  bool has(std::string_view key) const { return file_.has(prefix_ + std::string(key)); }
  Status status() const { return error_ ? Status(*error_) : Status(); }

 private:
  int integer(std::string_view key, const Result<uint32_t>& read, int64_t min, int64_t max);
  float real(std::string_view key, const Result<float>& read, float min, float max);
  const tensor::GgufFile& file_;
  std::string prefix_;
  std::optional<Error> error_;
};

// Finds tensors with their shapes, remembers the first error and which tensors were used.
class TensorReader {
 public:
  TensorReader(const tensor::GgufFile& file, const tensor::Weights& weights) : file_(file), weights_(weights) {}

  tensor::Tensor matrix(const std::string& name, int64_t n_in, int64_t n_out);  // ne {n_in, n_out}, any type that
                                                                                // multiplies
  tensor::Tensor vector(const std::string& name, int64_t n);                    // f32 [n]
  tensor::Tensor optional_matrix(const std::string& name, int64_t n_in, int64_t n_out) {
    return has(name) ? matrix(name, n_in, n_out) : nullptr;
  }
  tensor::Tensor optional_vector(const std::string& name, int64_t n) { return has(name) ? vector(name, n) : nullptr; }
  bool has(const std::string& name) const { return file_.find(name) != nullptr; }
  // An error when anything was wrong, or when the file holds a tensor that nothing asked for: it would change the
  // result.
  Status finish() const;

 private:
  const tensor::GgufFile& file_;
  const tensor::Weights& weights_;
  std::set<std::string, std::less<>> used_;
  std::optional<Error> error_;
};

// rope.scaling.* as libllama reads them: none, linear, yarn; others are refused by name. `n_dims`: rotated dimensions
// of a head.
tensor::RopeParams read_rope(KeyReader& keys, int n_dims, int n_ctx_train);

// A matrix of the file, [n_out, n_in] of any type that can be read, as f32 [n_in][n_out]. The tensor is there
// (checked).
std::vector<float> transposed_f32(const tensor::GgufFile& file, const std::string& name);

// general.name, size and type of the weights: what is the same for all architectures.
void describe(const tensor::GgufFile& file, HyperParams& hyper);

}  // namespace kedge::model
