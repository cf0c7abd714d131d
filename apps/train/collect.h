// Reads windows of text with the model's own full cache and says of a sample of their rows what became of them.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "gate/ageing.h"
#include "kedge/error.h"
#include "kedge/model.h"
#include "session/timeline.h"
#include "train/labels.h"
#include "train/shard.h"

namespace kedge::train {

// Which columns of a shard are filled.
struct Collected {
  bool hidden = true;
  bool key_value = false;
  bool aged = false;        // late labels, at a cut somewhere in the middle third of the window
  FeatureSet features = 0;  // there, of those that are measured
};

struct CollectOptions {
  Collected what;
  LabelOptions labels;  // window: newest rows, which no gate decides about
  int sinks = 4;        // first rows, likewise
  double share = 0.25;  // of the other rows: how many are taken
  uint64_t seed = 1;
};

bool reads_twice(FeatureSet features);  // what comes before the cut is read once more

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
  struct Sample {
    std::vector<int32_t> rows;  // positions, ascending, the same in all layers
    int32_t cut = 0;            // 0: none
    size_t n_aged = 0;          // first rows, which left the window before the cut
  };
  static void keep_rows(ggml_tensor* dst, int ith, int nth, void* user);
  tensor::Tensor capture(tensor::Graph& graph, int layer, const attention::RowOrigin& origin);
  Sample sample(int64_t n_tokens, uint64_t index) const;
  Shard empty_shard(const Sample& sample) const;
  void take_layer(const eviction::LayerInput& in, const Sample& sample, Shard& shard) const;
  void take_features(const eviction::LayerInput& in, const Sample& sample, Shard& shard) const;
  Status read_labels(std::span<const Token> tokens, const Sample& sample, Shard& shard);
  Status read_features(std::span<const Token> tokens, const Sample& sample, Shard& shard) const;

  session::Engine engine_;
  CollectOptions options_;
  std::vector<OutputNorm> norms_;  // [n_layers][n_kv_heads]
  std::deque<Node> nodes_;
  std::vector<std::vector<uint16_t>> hidden_;     // [layer] f16 [n_tokens][n_embd]
  std::vector<std::vector<uint16_t>> key_value_;  // [layer] f16 [n_tokens][2][n_kv_heads * head_dim]
  std::vector<int64_t> n_seen_;                   // [layer] rows
};

}  // namespace kedge::train
