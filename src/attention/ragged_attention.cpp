#include "attention/ragged_attention.h"

#include <ggml.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "base/thread_order.h"

namespace kedge::attention {

namespace {

constexpr int kAlignFloats = 16;  // 64 bytes

const float* floats(const ggml_tensor* t) { return static_cast<const float*>(t->data); }
float* floats(ggml_tensor* t) { return static_cast<float*>(t->data); }

// Bytes of K and V that one token's attention reads of a head.
int64_t bytes_read(const KvHeadView& rows) {
  return rows.n_body() * static_cast<int64_t>(row_bytes(rows.head_dim, rows.type)) +
         rows.n_tail * static_cast<int64_t>(row_bytes(rows.head_dim, RowType::f16));
}

}  // namespace

RaggedAttention::RaggedAttention(const Options& options) : options_(options) {
  const AttentionShape& shape = options_.shape;
  scratch_floats_ = tile_scratch_floats(kTileQueries, shape.group(), shape.head_dim);
  scratch_floats_ = (scratch_floats_ + kAlignFloats - 1) / kAlignFloats * kAlignFloats;
}

RaggedAttention::~RaggedAttention() = default;

tensor::Tensor RaggedAttention::attend(tensor::Graph& graph, int layer, tensor::Tensor q, tensor::Tensor k,
                                       tensor::Tensor v, const RowOrigin& origin) {
  const int64_t n_tokens = q->ne[1];
  const int64_t width = q->ne[0];  // n_heads * head_dim
  Node* node = &nodes_.emplace_back(Node{this, layer});
  std::vector<tensor::Tensor> rows = {k, v};
  if (options_.gate)
    rows.push_back(options_.gate(graph, layer, origin));
  tensor::Tensor appended = graph.custom(rows, 1, 1, append_node, node);
  const std::array<tensor::Tensor, 2> inputs = {q, appended};
  if (n_tokens > 1) {
    if (scratch_.empty())
      scratch_.resize(static_cast<size_t>(scratch_floats_) * options_.n_threads + kAlignFloats);
    return graph.custom(inputs, n_tokens, width, tiles_node, node);
  }
  tensor::Tensor attended = graph.custom(inputs, 1, 1, segments_node, node);
  const std::array<tensor::Tensor, 2> parts = {q, attended};
  return graph.custom(parts, 1, width, merge_node, node);
}

// k f32 [n, n_kv_heads * head_dim], v same; with a gate f32 [n, n_kv_heads]. Threads take whole heads: a head's length
// has one writer.
void RaggedAttention::append_node(ggml_tensor* dst, int ith, int nth, void* user) {
  const BetweenBarriers order;
  const Node& node = *static_cast<Node*>(user);
  RaggedAttention& self = *node.port;
  const ggml_tensor* k = dst->src[0];
  const ggml_tensor* v = dst->src[1];
  const ggml_tensor* gate = dst->src[2];
  const AttentionShape& shape = self.options_.shape;
  check(static_cast<size_t>(k->ne[1]) == self.positions_.size(), "positions of the batch were set");
  if (ith == 0)
    self.next_tile_.store(0, std::memory_order_relaxed);
  for (int head = ith; head < shape.n_kv_heads; head += nth) {
    self.options_.rows->append(node.layer, head,
                               {.k = floats(k) + static_cast<long>(head) * shape.head_dim,
                                .v = floats(v) + static_cast<long>(head) * shape.head_dim,
                                .row_stride = k->ne[0],
                                .positions = self.positions_,
                                .gate = gate == nullptr ? nullptr : floats(gate) + head,
                                .gate_stride = shape.n_kv_heads});
  }
}

void RaggedAttention::prepare(std::span<const int32_t> positions, int n_layers) {
  positions_ = positions;
  const AttentionShape& shape = options_.shape;
  if (options_.queries != nullptr)
    options_.queries->resize(positions.size() * static_cast<size_t>(shape.n_heads * shape.head_dim));
  if (positions.size() != 1)
    return;
  int most = 0;
  for (int layer = 0; layer < n_layers; ++layer) {
    int segments = 0;
    for (int head = 0; head < shape.n_kv_heads; ++head)
      segments += segments_of(options_.rows->view(layer, head)) + 1;  // the new row may begin one
    most = std::max(most, segments);
  }
  const size_t wanted = static_cast<size_t>(most) * partial_floats(shape.group(), shape.head_dim);
  if (partials_.size() < wanted)
    partials_.resize(wanted * 2);
}

// q f32 [1, n_heads * head_dim]. A head's rows are cut into segments of kSegmentRows whatever the number of threads, so
// that merging is deterministic; each thread walks the same short list and takes the segments whose middle lies in its
// share.
void RaggedAttention::segments_node(ggml_tensor* dst, int ith, int nth, void* user) {
  const BetweenBarriers order;
  const Node& node = *static_cast<Node*>(user);
  RaggedAttention& self = *node.port;
  const AttentionShape& shape = self.options_.shape;
  const float* q = floats(dst->src[0]);
  const int group = shape.group();
  const int floats_each = partial_floats(group, shape.head_dim);
  long total = 0;
  int64_t bytes = 0;
  for (int head = 0; head < shape.n_kv_heads; ++head) {
    const KvHeadView rows = self.options_.rows->view(node.layer, head);
    total += rows.n_rows;
    bytes += bytes_read(rows);
  }
  if (ith == 0) {
    self.decode_time_.row_bytes += bytes;
    self.segments_watch_ = Stopwatch();
  }
  const Share share = share_of(total, ith, nth);
  long at = 0;
  int slot = 0;
  for (int head = 0; head < shape.n_kv_heads; ++head) {
    const KvHeadView rows = self.options_.rows->view(node.layer, head);
    for (int i = 0; i < segments_of(rows); ++i, ++slot) {
      const auto [begin, end] = segment_of(rows, i);
      const long middle = at + (end - begin) / 2;
      at += end - begin;
      if (middle < share.begin || middle >= share.end)
        continue;
      self.options_.kernels->attend_segment(rows, begin, end, q + static_cast<long>(head) * group * shape.head_dim,
                                            group, shape.scale,
                                            &self.partials_[static_cast<size_t>(slot) * floats_each]);
    }
  }
}

// y f32 [1, n_heads * head_dim]
void RaggedAttention::merge_node(ggml_tensor* dst, int ith, int nth, void* user) {
  const BetweenBarriers order;
  const Node& node = *static_cast<Node*>(user);
  RaggedAttention& self = *node.port;
  const AttentionShape& shape = self.options_.shape;
  const int group = shape.group();
  const int floats_each = partial_floats(group, shape.head_dim);
  if (ith == 0)  // the barrier before this node has waited for every thread's segments
    self.decode_time_.seconds += self.segments_watch_.seconds();
  int slot = 0;
  for (int head = 0; head < shape.n_kv_heads; ++head) {
    const int n_segments = segments_of(self.options_.rows->view(node.layer, head));
    if (head % nth == ith) {
      const long offset = static_cast<long>(head) * group * shape.head_dim;
      float* y = floats(dst) + offset;
      self.options_.kernels->merge_partials(&self.partials_[static_cast<size_t>(slot) * floats_each], n_segments, group,
                                            shape.head_dim, y);
      self.record(node.layer, head, 0, floats(dst->src[0]) + offset, y);
    }
    slot += n_segments;
  }
}

// y f32 [n, n_heads * head_dim]. Tiles are handed out from the last (which sees most rows) to the first.
void RaggedAttention::tiles_node(ggml_tensor* dst, int ith, int /*nth*/, void* user) {
  const BetweenBarriers order;
  const Node& node = *static_cast<Node*>(user);
  RaggedAttention& self = *node.port;
  const AttentionShape& shape = self.options_.shape;
  const auto n_tokens = static_cast<int>(dst->ne[1]);
  const long width = dst->ne[0];
  const int n_tiles = (n_tokens + kTileQueries - 1) / kTileQueries;
  const auto base = reinterpret_cast<uintptr_t>(self.scratch_.data());
  float* scratch = self.scratch_.data() + ((64 - base % 64) % 64) / sizeof(float) + ith * self.scratch_floats_;
  for (;;) {
    const int item = self.next_tile_.fetch_add(1, std::memory_order_relaxed);
    if (item >= n_tiles * shape.n_kv_heads)
      break;
    const int head = item % shape.n_kv_heads;
    const int tile = n_tiles - 1 - item / shape.n_kv_heads;
    const int first = tile * kTileQueries;
    const int n = std::min(kTileQueries, n_tokens - first);
    const long offset = static_cast<long>(head) * shape.group() * shape.head_dim;
    const float* q = floats(dst->src[0]) + first * width + offset;
    float* y = floats(dst) + first * width + offset;
    self.options_.kernels->attend_tile(self.options_.rows->view(node.layer, head),
                                       {.q = q,
                                        .row_stride = width,
                                        .head_stride = shape.head_dim,
                                        .positions = self.positions_.data() + first,
                                        .n_queries = n,
                                        .group = shape.group(),
                                        .scale = shape.scale},
                                       {.y = y, .row_stride = width, .head_stride = shape.head_dim}, scratch);
    for (int t = 0; t < n; ++t)
      self.record(node.layer, head, static_cast<size_t>(first + t), q + t * width, y + t * width);
  }
}

// token: of the graph's. q, y: of the group's first query head, f32 [group][head_dim].
void RaggedAttention::record(int layer, int kv_head, size_t token, const float* q, const float* y) const {
  if (options_.queries != nullptr) {
    const AttentionShape& all = options_.shape;
    const size_t floats_each = static_cast<size_t>(all.group() * all.head_dim);
    std::memcpy(&(*options_.queries)[(token * static_cast<size_t>(all.n_kv_heads) + kv_head) * floats_each], q,
                floats_each * sizeof(float));
  }
  const int32_t position = positions_[token];
  if (options_.taps == nullptr || options_.taps->window() == 0)
    return;
  if (position + options_.taps->window() <= positions_.back())
    return;  // a newer row takes its slot
  const AttentionShape& shape = options_.shape;
  for (int g = 0; g < shape.group(); ++g) {
    const long offset = static_cast<long>(g) * shape.head_dim;
    options_.taps->record(
        {.layer = layer, .head = kv_head * shape.group() + g, .position = position, .q = q + offset, .y = y + offset});
  }
}

}  // namespace kedge::attention
