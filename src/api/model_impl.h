// What a loaded model owns; sessions share it.
#pragma once

#include <memory>

#include "gate/gate.h"
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
  std::unique_ptr<gate::GateNet> gate;
  const AttentionKernels* kernels = nullptr;
  ModelInfo info;

  session::Engine engine() const {
    attention::RowNodes nodes;
    if (gate != nullptr && gate->has_append_stage()) {
      nodes = [net = gate.get()](tensor::Graph& graph, int layer, const attention::RowOrigin& row) {
        return net->logits(graph, layer, {.hidden = row.hidden, .key = row.key, .value = row.value});
      };
    }
    return {.compute = compute.get(),
            .model = net.get(),
            .kernels = kernels,
            .tokenizer = tokenizer.get(),
            .gate = std::move(nodes),
            .ageing = gate == nullptr ? nullptr : gate->ageing(),
            .gate_ranks_model = gate != nullptr && gate->info().ranks == "model",
            .gate_curve = gate == nullptr ? std::span<const gate::KeepThreshold>() : gate->thresholds(),
            .gate_sha256 = gate == nullptr ? "" : gate->sha256()};
  }
};

}  // namespace kedge
