#include "train/collect.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "base/executor.h"
#include "kernels/half.h"
#include "tensor/compute.h"

namespace kedge::train {

Collector::Collector(const session::Engine& engine, const CollectOptions& options)
    : engine_(engine), options_(options) {
  const model::HyperParams& hyper = engine.model->hyper();
  const auto size =
      static_cast<size_t>(hyper.group()) * static_cast<size_t>(hyper.head_dim) * static_cast<size_t>(hyper.n_embd);
  for (int layer = 0; layer < hyper.n_layers; ++layer) {
    const std::vector<float> w_o = engine.model->output_projection(layer);
    for (int head = 0; head < hyper.n_kv_heads; ++head)
      norms_.emplace_back(std::span(w_o).subspan(static_cast<size_t>(head) * size, size), hyper.group(), hyper.head_dim,
                          hyper.n_embd);
  }
  engine_.gate = [this](tensor::Graph& graph, int layer, tensor::Tensor x) { return capture(graph, layer, x); };
}

// A gate that says nothing and remembers what it was asked about.
tensor::Tensor Collector::capture(tensor::Graph& graph, int layer, tensor::Tensor x) {
  int64_t& seen = n_seen_[static_cast<size_t>(layer)];
  nodes_.push_back({this, layer, seen});
  seen += tensor::n_rows(x);
  return graph.custom(std::span(&x, 1), tensor::n_rows(x), engine_.model->hyper().n_kv_heads, keep_rows,
                      &nodes_.back());
}

void Collector::keep_rows(ggml_tensor* dst, int ith, int nth, void* user) {
  const Node& node = *static_cast<Node*>(user);
  tensor::Tensor x = tensor::custom_input(dst, 0);
  const auto width = static_cast<size_t>(tensor::n_cols(x));
  const auto n_heads = static_cast<size_t>(tensor::n_cols(dst));
  const Share share = share_of(static_cast<long>(tensor::n_rows(x)), ith, nth);
  std::vector<uint16_t>& hidden = node.self->hidden_[static_cast<size_t>(node.layer)];
  for (long row = share.begin; row < share.end; ++row) {
    const float* from = tensor::f32_data(x) + static_cast<size_t>(row) * width;
    uint16_t* to = hidden.data() + static_cast<size_t>(node.row + row) * width;
    std::transform(from, from + width, to, f32_to_f16);
    std::fill_n(tensor::f32_data(dst) + static_cast<size_t>(row) * n_heads, n_heads, 0.0F);
  }
}

// Ascending positions of the rows that are taken, the same in all layers.
std::vector<int32_t> Collector::sample(int64_t n_tokens, uint64_t index) const {
  const int64_t end = std::max<int64_t>(n_tokens - options_.labels.window, options_.sinks);
  std::vector<int32_t> rows(static_cast<size_t>(end - options_.sinks));
  std::iota(rows.begin(), rows.end(), options_.sinks);
  std::mt19937_64 random(options_.seed * 1'000'003 + index);
  std::shuffle(rows.begin(), rows.end(), random);
  rows.resize(static_cast<size_t>(static_cast<double>(rows.size()) * options_.share));
  std::ranges::sort(rows);
  return rows;
}

void Collector::take_layer(const eviction::LayerInput& in, std::span<const int32_t> rows, Shard& shard) const {
  const auto layer = static_cast<size_t>(in.heads.front().layer);
  const size_t n_heads = in.heads.size();
  std::vector<std::vector<float>> labels(n_heads);
  engine_.compute->run([&](int ith, int nth) {
    for (size_t h = static_cast<size_t>(ith); h < n_heads; h += static_cast<size_t>(nth))
      labels[h] = row_labels(in.heads[h], norms_[layer * n_heads + h], options_.labels);
  });
  LayerRows& out = shard.layers[layer];
  const size_t width = shard.shape.n_embd;
  for (const int32_t row : rows) {
    const uint16_t* x = hidden_[layer].data() + static_cast<size_t>(row) * width;
    out.x.insert(out.x.end(), x, x + width);
    for (size_t h = 0; h < n_heads; ++h)
      out.y.push_back(labels[h][static_cast<size_t>(row)]);
  }
}

Result<Shard> Collector::read(std::span<const Token> tokens, uint64_t index) {
  const model::HyperParams& hyper = engine_.model->hyper();
  const auto n = static_cast<int64_t>(tokens.size());
  SessionOptions options;
  options.budget = *parse_budget("50%");  // a layer is looked at when it is evicted, with all its rows
  options.policy = policy_for(options_.labels.label);
  options.order = PrefillOrder::layer_major;
  options.expected_prompt = n;
  options.expected_generated = 0;
  options.n_observed = static_cast<int>(n);
  options.histories.gate = true;
  Result<std::unique_ptr<session::Timeline>> timeline = session::Timeline::create(engine_, options);
  if (!timeline)
    return timeline.error();
  nodes_.clear();
  n_seen_.assign(static_cast<size_t>(hyper.n_layers), 0);
  hidden_.resize(static_cast<size_t>(hyper.n_layers));
  for (std::vector<uint16_t>& layer : hidden_)
    layer.resize(static_cast<size_t>(n) * static_cast<size_t>(hyper.n_embd));
  const std::vector<int32_t> rows = sample(n, index);
  Shard shard{.shape = {.n_rows = static_cast<uint32_t>(rows.size()),
                        .n_layers = static_cast<uint32_t>(hyper.n_layers),
                        .n_embd = static_cast<uint32_t>(hyper.n_embd),
                        .n_heads = static_cast<uint32_t>(hyper.n_kv_heads)},
              .made_from = {},
              .layers = std::vector<LayerRows>(static_cast<size_t>(hyper.n_layers))};
  (*timeline)->watch([&](const eviction::LayerInput& in) { take_layer(in, rows, shard); });
  if (Status status = (*timeline)->prefill(tokens, {}); !status)
    return status.error();
  return shard;
}

}  // namespace kedge::train
