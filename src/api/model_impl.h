// What a loaded model owns; sessions share it.
#pragma once

#include <memory>

#include "kedge/model.h"
#include "model/model.h"
#include "model/tokenizer.h"
#include "session/timeline.h"
#include "tensor/compute.h"

namespace kedge {

struct Model::Impl {
  // Order matters: what is below uses what is above.
  std::unique_ptr<tensor::Compute> compute;
  std::unique_ptr<model::Model> net;
  std::unique_ptr<model::Tokenizer> tokenizer;
  const AttentionKernels* kernels = nullptr;
  ModelInfo info;

  session::Engine engine() const {
    return {.compute = compute.get(), .model = net.get(), .kernels = kernels, .tokenizer = tokenizer.get()};
  }
};

}  // namespace kedge
