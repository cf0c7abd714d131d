// A LoRA adapter (tensor/lora_file.h) on a model: nodes beside the products with the matrices that it names.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kedge/error.h"
#include "tensor/compute.h"
#include "tensor/gguf_file.h"
#include "tensor/lora_file.h"

namespace kedge::model {

struct LoraOptions {
  std::string path;
  float scale = 1;
};

// What it is laid on.
struct LoraHost {
  const tensor::GgufFile& file;
  const tensor::Weights& weights;
  std::string architecture;
  std::span<const std::string> matrices;  // those that an adapter may change
};

class Lora {
 public:
  // Errors: those of GgufFile::open and read_lora(); model_unreadable: another architecture, a matrix that the model
  // does not have or that none may change, other sizes; usage: a scale that is not finite.
  static Result<std::unique_ptr<Lora>> load(tensor::Compute& compute, const LoraOptions& options, const LoraHost& host);

  const tensor::LoraInfo& info() const { return info_; }
  const std::string& sha256() const { return sha256_; }  // of the file
  float scale() const { return scale_; }
  std::string words() const;  // for people: "NAME (sha256 0123456789abcdef) at 0.5"

  // product f32 [n, n_out]: `weight` of the model times x f32 [n, n_in]. Returns it with the adapter's part.
  tensor::Tensor added(tensor::Graph& graph, tensor::Tensor weight, tensor::Tensor x, tensor::Tensor product) const;
  // transposed f32 [n_in][n_out] of the matrix: adds factor * B A.
  void add_transposed(std::string_view matrix, std::span<float> transposed) const;

 private:
  struct Part {
    tensor::Tensor a = nullptr;  // [rank, n_in]
    tensor::Tensor b = nullptr;  // [n_out, rank]
    float factor = 1;
  };
  std::unique_ptr<tensor::GgufFile> file_;
  std::unique_ptr<tensor::Weights> weights_;
  tensor::LoraInfo info_;
  std::vector<tensor::LoraPair> pairs_;
  std::string sha256_;
  float scale_ = 1;
  std::unordered_map<tensor::Tensor, Part> parts_;  // by the model's weight
};

}  // namespace kedge::model
