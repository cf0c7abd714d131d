// The file of a LoRA adapter (arXiv 2106.09685), in llama.cpp's own format: W x becomes W x + factor * B (A x).
//
//   keys     general.architecture: the model's; general.type "adapter", adapter.type "lora", adapter.lora.alpha f32;
//            general.name and general.description for people
//   tensors  for each matrix NAME of the model that it changes, W [n_out, n_in]:
//            NAME.lora_a: A [rank, n_in], NAME.lora_b: B [n_out, rank]; any type that multiplies
//   factor = scale * alpha / rank; where alpha is 0 it is the scale alone, as in llama.cpp
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kedge/error.h"
#include "tensor/gguf_file.h"

namespace kedge::tensor {

struct LoraPair {
  std::string matrix;             // "blk.0.attn_q.weight"
  const TensorInfo* a = nullptr;  // of the file
  const TensorInfo* b = nullptr;
  int64_t rank() const { return b->ne[0]; }
  int64_t n_in() const { return a->ne[0]; }
  int64_t n_out() const { return b->ne[1]; }
};

struct LoraInfo {
  std::string name;
  std::string description;
  std::string architecture;
  float alpha = 0;
  float factor(int64_t rank, float scale) const {
    return alpha == 0 ? scale : scale * alpha / static_cast<float>(rank);
  }
};

struct LoraFile {
  LoraInfo info;
  std::vector<LoraPair> pairs;  // by name
};

// What can be checked without the model: keys, that pairs are whole and of one rank, types, numbers that are finite.
// Errors model_unreadable: names key or tensor, what was found, what is allowed.
Result<LoraFile> read_lora(const GgufFile& file);

// One matrix of an adapter that is to be written.
struct LoraMatrices {
  std::string matrix;
  int64_t n_in = 0, n_out = 0, rank = 0;
  std::vector<float> a;  // f32 [rank][n_in]
  std::vector<float> b;  // f32 [n_out][rank]
};
std::vector<std::byte> lora_bytes(const LoraInfo& info, std::span<const LoraMatrices> matrices);

}  // namespace kedge::tensor
