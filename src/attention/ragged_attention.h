// Attention over ragged KV rows as ggml custom nodes: append, then attend, then record what scorers want to see.
//
//   one token:   [append K,V] -> [attend: (kv head, segment) items -> partial m,l,O] -> [merge -> y]
//   a batch:     [append K,V] -> [attend: (kv head, query tile) items, largest first -> y]
//
// Nodes carry no lengths: what they attend over is looked up when they run, so a decode graph is built once and
// replayed.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "attention/attention_port.h"
#include "attention/taps.h"
#include "base/clock.h"
#include "kernels/attention.h"

namespace kedge::attention {

// Who owns the rows. Implemented by the session over the store, and by tests over plain vectors.
class KvRows {
 public:
  virtual ~KvRows() = default;
  // k, v: f32, row i at k + i * row_stride; room has been reserved. Concurrent for different heads.
  struct NewRows {
    const float* k;
    const float* v;
    long row_stride;
    std::span<const int32_t> positions;
    // What Options::gate says of the head's rows: row i at gate + i * gate_stride. nullptr: there is none.
    const float* gate = nullptr;
    long gate_stride = 0;
  };
  virtual void append(int layer, int head, const NewRows& rows) = 0;
  virtual KvHeadView view(int layer, int head) const = 0;
};

struct AttentionShape {
  int n_heads = 0;
  int n_kv_heads = 0;
  int head_dim = 0;
  float scale = 1;
  int group() const { return n_heads / n_kv_heads; }
};

// Something for every kv head of each new row of a layer, f32 [n, n_kv_heads].
using RowNodes = std::function<tensor::Tensor(tensor::Graph&, int layer, const RowOrigin& origin)>;

class RaggedAttention final : public AttentionPort {
 public:
  struct Options {
    AttentionShape shape;
    const AttentionKernels* kernels = nullptr;
    KvRows* rows = nullptr;
    Taps* taps = nullptr;  // nullptr: nothing is recorded
    // Gets every query of a graph of one layer, after RoPE: f32 [n_tokens][n_heads * head_dim]. nullptr: not kept.
    std::vector<float>* queries = nullptr;
    RowNodes gate;  // appended with the rows; empty: nothing is
    int n_threads = 1;
  };
  explicit RaggedAttention(const Options& options);
  ~RaggedAttention() override;

  tensor::Tensor attend(tensor::Graph& graph, int layer, tensor::Tensor q, tensor::Tensor k, tensor::Tensor v,
                        const RowOrigin& origin) override;

  // Call before each graph run: positions of its tokens, ascending; they must stay valid during it. Also makes room for
  // the partial results of a one-token run over layers [0, n_layers) as long as they will be after the append.
  void prepare(std::span<const int32_t> positions, int n_layers);
  // Forgets the nodes of graphs that no longer exist.
  void clear_nodes() { nodes_.clear(); }

  // What decoding has spent on attention over rows: wall time from the first thread's start to the last one's end in
  // every layer (append, merge and the rest of the graph are outside), and the K and V bytes read in it.
  struct DecodeTime {
    double seconds = 0;
    int64_t row_bytes = 0;
  };
  const DecodeTime& decode_time() const { return decode_time_; }

 private:
  struct Node {
    RaggedAttention* port;
    int layer;
  };

  static void append_node(ggml_tensor* dst, int ith, int nth, void* user);
  static void segments_node(ggml_tensor* dst, int ith, int nth, void* user);
  static void merge_node(ggml_tensor* dst, int ith, int nth, void* user);
  static void tiles_node(ggml_tensor* dst, int ith, int nth, void* user);
  void record(int layer, int kv_head, size_t token, const float* q, const float* y) const;

  Options options_;
  std::span<const int32_t> positions_;
  std::deque<Node> nodes_;         // stable addresses: nodes hold pointers to their elements
  std::vector<float> partials_;    // decode: f32 [slots][partial_floats]
  std::atomic<int> next_tile_{0};  // prefill: next tile to hand out
  std::vector<float> scratch_;     // prefill: per thread, 64-byte aligned
  long scratch_floats_ = 0;
  DecodeTime decode_time_;    // thread 0 only
  Stopwatch segments_watch_;  // since thread 0 began the running layer's segments
};

}  // namespace kedge::attention
