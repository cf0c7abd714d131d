#include "train_lm/learned_lora.h"

#include <ATen/ATen.h>

#include <cmath>

#include "base/check.h"
#include "eval/random.h"
#include "tensor/lora_file.h"
#include "train_lm/tensors.h"

namespace kedge::lm {
namespace {

using at::Tensor;

constexpr const char* kMatrices[] = {"attn_q", "attn_k", "attn_v", "attn_output"};

}  // namespace

LearnedLora LearnedLora::fresh(const FrozenModel& model, int rank, uint64_t seed, at::ScalarType type) {
  LearnedLora lora;
  lora.rank_ = rank;
  const int64_t n_q = int64_t{model.n_heads} * model.head_dim, n_kv = int64_t{model.n_kv_heads} * model.head_dim;
  const int64_t n_in[] = {model.n_embd, model.n_embd, model.n_embd, n_q};
  const int64_t n_out[] = {n_q, n_kv, n_kv, model.n_embd};
  for (int layer = 0; rank > 0 && layer < model.n_layers; ++layer) {
    eval::Random random(seed, "lora " + std::to_string(layer));
    for (size_t i = 0; i < std::size(kMatrices); ++i) {
      Tensor a = at::empty({rank, n_in[i]}, at::kFloat);
      const double most = 1 / std::sqrt(static_cast<double>(n_in[i]));
      for (int64_t at = 0; at < a.numel(); ++at)
        a.data_ptr<float>()[at] = static_cast<float>((static_cast<double>(random.next() >> 11) * 0x1p-52 - 1) * most);
      lora.parameters_.push_back(a.to(type).requires_grad_(true));
      lora.parameters_.push_back(at::zeros({n_out[i], rank}, type).requires_grad_(true));
    }
  }
  return lora;
}

LayerLora LearnedLora::layer(const FrozenModel& model, int layer) const {
  check(rank_ > 0, "there is an adapter");
  const std::span<const Tensor> own = of_layer(layer);
  return {.q = {own[0], as_halves(own[1], model.n_heads) * model.attention_scale},
          .k = {own[2], as_halves(own[3], model.n_kv_heads)},
          .v = {own[4], own[5]},
          .o = {own[6], own[7]}};
}

int64_t LearnedLora::n_parameters() const { return n_elements(parameters_); }

std::vector<std::byte> LearnedLora::file(const std::string& name, const std::string& description) const {
  check(rank_ > 0, "there is an adapter");
  std::vector<tensor::LoraMatrices> matrices;
  for (size_t i = 0; i < parameters_.size(); i += 2) {
    const Tensor& a = parameters_[i];
    const Tensor& b = parameters_[i + 1];
    matrices.push_back(
        {.matrix = "blk." + std::to_string(i / kPerLayer) + "." + kMatrices[i % kPerLayer / 2] + ".weight",
         .n_in = a.size(1),
         .n_out = b.size(0),
         .rank = rank_,
         .a = as_vector(a),
         .b = as_vector(b)});
  }
  return tensor::lora_bytes(
      {.name = name, .description = description, .architecture = "llama", .alpha = static_cast<float>(rank_)},
      matrices);
}

}  // namespace kedge::lm
