// Reads windows of text with the model's own full cache and says of a sample of their rows what became of them.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "kedge/error.h"
#include "kedge/model.h"
#include "session/timeline.h"
#include "train/labels.h"
#include "train/shard.h"

namespace kedge::train {

struct CollectOptions {
  LabelOptions labels;  // window: newest rows, which no gate decides about
  int sinks = 4;        // first rows, likewise
  double share = 0.25;  // of the other rows: how many are taken
  uint64_t seed = 1;
};

class Collector {
 public:
  // `engine` without a gate; all it points to must outlive the collector.
  Collector(const session::Engine& engine, const CollectOptions& options);
  // Rows of one window, made_from empty. index: of the window, for the sample. Errors: those of a session's prefill.
  Result<Shard> read(std::span<const Token> tokens, uint64_t index);

 private:
  struct Node {
    Collector* self;
    int layer;
    int64_t row;  // first of the graph
  };
  static void keep_rows(ggml_tensor* dst, int ith, int nth, void* user);
  tensor::Tensor capture(tensor::Graph& graph, int layer, tensor::Tensor x);
  std::vector<int32_t> sample(int64_t n_tokens, uint64_t index) const;
  void take_layer(const eviction::LayerInput& in, std::span<const int32_t> rows, Shard& shard) const;

  session::Engine engine_;
  CollectOptions options_;
  std::vector<OutputNorm> norms_;  // [n_layers][n_kv_heads]
  std::deque<Node> nodes_;
  std::vector<std::vector<uint16_t>> hidden_;  // [layer] f16 [n_tokens][n_embd]
  std::vector<int64_t> n_seen_;                // [layer] rows
};

}  // namespace kedge::train
