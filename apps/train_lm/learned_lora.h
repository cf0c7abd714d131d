// A LoRA adapter whose weights learn: A and B of the attention's four projections in every layer, in the order that the
// model's file has. alpha is the rank, so W x becomes W x + B (A x).
#pragma once

#include <ATen/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "train_lm/frozen_model.h"

namespace kedge::lm {

class LearnedLora {
 public:
  static constexpr size_t kPerLayer = 8;

  // A small and random, B zero: the model as it is. rank 0: no adapter, and nothing that learns.
  static LearnedLora fresh(const FrozenModel& model, int rank, uint64_t seed, at::ScalarType type);

  int rank() const { return rank_; }
  // For run_layer(), with gradients to the leaves. There is a rank.
  LayerLora layer(const FrozenModel& model, int layer) const;

  // Leaves: of each layer A [rank, n_in] and B [n_out, rank] of q, k, v and output.
  std::vector<at::Tensor>& parameters() { return parameters_; }
  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  std::span<const at::Tensor> of_layer(int layer) const {
    return rank_ == 0 ? std::span<const at::Tensor>()
                      : std::span(parameters_).subspan(static_cast<size_t>(layer) * kPerLayer, kPerLayer);
  }
  int64_t n_parameters() const;

  // The adapter's file (tensor/lora_file.h). There is a rank.
  std::vector<std::byte> file(const std::string& name, const std::string& description) const;

 private:
  int rank_ = 0;
  std::vector<at::Tensor> parameters_;
};

}  // namespace kedge::lm
