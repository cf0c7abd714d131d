#include "train/collect.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <random>

#include "base/executor.h"
#include "eviction/ageing.h"
#include "kernels/half.h"
#include "tensor/compute.h"

namespace kedge::train {

namespace {

constexpr FeatureSet bit(gate::Feature feature) { return FeatureSet{1} << static_cast<uint32_t>(feature); }

constexpr FeatureSet kEchoes = bit(gate::Feature::past) | bit(gate::Feature::echo);
constexpr FeatureSet kRecorded = bit(gate::Feature::attention) | kEchoes;  // by a session, token by token

// The cheapest policy that lets a session record what the features ask for.
std::string policy_for(FeatureSet features) {
  if ((features & bit(gate::Feature::attention)) == 0)
    return "echo";
  return (features & kEchoes) != 0 ? "h2o/error:echo=0.1" : "h2o";
}

// A head of the whole window, with the full cache and all its queries, as it was at an earlier token: a row's index is
// its position.
eviction::HeadInput before(eviction::HeadInput in, int32_t n_tokens) {
  in.rows.n_rows = in.n_tokens = n_tokens;
  const int32_t* const end = in.query_positions + in.n_window;
  in.n_window = static_cast<int>(std::lower_bound(in.query_positions, end, n_tokens) - in.query_positions);
  return in;
}

}  // namespace

bool reads_twice(FeatureSet features) { return (features & kRecorded) != 0; }

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
  engine_.gate = [this](tensor::Graph& graph, int layer, const attention::RowOrigin& origin) {
    return capture(graph, layer, origin);
  };
}

// A gate that says nothing and remembers what it was asked about.
tensor::Tensor Collector::capture(tensor::Graph& graph, int layer, const attention::RowOrigin& origin) {
  int64_t& seen = n_seen_[static_cast<size_t>(layer)];
  nodes_.push_back({this, layer, seen});
  const int64_t n = tensor::n_rows(origin.hidden);
  seen += n;
  const tensor::Tensor inputs[] = {origin.hidden, origin.key, origin.value};
  return graph.custom(inputs, n, engine_.model->hyper().n_kv_heads, keep_rows, &nodes_.back());
}

void Collector::keep_rows(ggml_tensor* dst, int ith, int nth, void* user) {
  const Node& node = *static_cast<Node*>(user);
  const Collected& what = node.self->options_.what;
  const auto n_heads = static_cast<size_t>(tensor::n_cols(dst));
  const Share share = share_of(static_cast<long>(tensor::n_rows(dst)), ith, nth);
  // Columns [first, first + width of x) of rows of `all` columns.
  const auto keep = [&](int input, std::vector<uint16_t>& to, size_t first, size_t all) {
    tensor::Tensor x = tensor::custom_input(dst, input);
    const auto width = static_cast<size_t>(tensor::n_cols(x));
    for (long row = share.begin; row < share.end; ++row) {
      const float* from = tensor::f32_data(x) + static_cast<size_t>(row) * width;
      std::transform(from, from + width, to.data() + static_cast<size_t>(node.row + row) * all + first, f32_to_f16);
    }
  };
  const auto layer = static_cast<size_t>(node.layer);
  const auto n_embd = static_cast<size_t>(tensor::n_cols(tensor::custom_input(dst, 0)));
  const auto n_kv = static_cast<size_t>(tensor::n_cols(tensor::custom_input(dst, 1)));
  if (what.hidden)
    keep(0, node.self->hidden_[layer], 0, n_embd);
  if (what.key_value) {
    keep(1, node.self->key_value_[layer], 0, 2 * n_kv);
    keep(2, node.self->key_value_[layer], n_kv, 2 * n_kv);
  }
  for (long row = share.begin; row < share.end; ++row)
    std::fill_n(tensor::f32_data(dst) + static_cast<size_t>(row) * n_heads, n_heads, 0.0F);
}

Collector::Sample Collector::sample(int64_t n_tokens, uint64_t index) const {
  Sample sample;
  const int64_t end = std::max<int64_t>(n_tokens - options_.labels.window, options_.sinks);
  std::vector<int32_t>& rows = sample.rows;
  rows.resize(static_cast<size_t>(end - options_.sinks));
  std::iota(rows.begin(), rows.end(), options_.sinks);
  std::mt19937_64 random(options_.seed * 1'000'003 + index);
  std::shuffle(rows.begin(), rows.end(), random);
  rows.resize(static_cast<size_t>(static_cast<double>(rows.size()) * options_.share));
  std::ranges::sort(rows);
  if (!options_.what.aged)
    return sample;
  sample.cut =
      static_cast<int32_t>(n_tokens / 3 + static_cast<int64_t>(random() % static_cast<uint64_t>(n_tokens / 3)));
  sample.n_aged =
      static_cast<size_t>(std::ranges::lower_bound(rows, sample.cut - options_.labels.window) - rows.begin());
  return sample;
}

Shard Collector::empty_shard(const Sample& sample) const {
  const model::HyperParams& hyper = engine_.model->hyper();
  const Collected& what = options_.what;
  const auto n_layers = static_cast<size_t>(hyper.n_layers);
  return {.shape = {.n_rows = static_cast<uint32_t>(sample.rows.size()),
                    .n_layers = static_cast<uint32_t>(n_layers),
                    .n_embd = what.hidden ? static_cast<uint32_t>(hyper.n_embd) : 0,
                    .n_heads = static_cast<uint32_t>(hyper.n_kv_heads),
                    .n_kv = what.key_value ? static_cast<uint32_t>(2 * hyper.n_kv_heads * hyper.head_dim) : 0,
                    .n_aged = static_cast<uint32_t>(sample.n_aged),
                    .features = what.aged ? what.features : 0},
          .made_from = {},
          .layers = std::vector<LayerRows>(n_layers)};
}

void Collector::take_layer(const eviction::LayerInput& in, const Sample& sample, Shard& shard) const {
  const auto layer = static_cast<size_t>(in.heads.front().layer);
  const size_t n_heads = in.heads.size();
  std::vector<RowLabels> labels(n_heads);
  for_each_index(*engine_.compute, static_cast<int>(n_heads), [&](int i) {
    const auto h = static_cast<size_t>(i);
    labels[h] = row_labels(in.heads[h], norms_[layer * n_heads + h], options_.labels, sample.cut);
  });
  if (shard.shape.features != 0 && !reads_twice(shard.shape.features)) {
    eviction::LayerInput cut = in;
    for (eviction::HeadInput& head : cut.heads)
      head = before(head, sample.cut);
    take_features(cut, sample, shard);
  }
  LayerRows& out = shard.layers[layer];
  const auto keep = [](std::span<const uint16_t> rows, int32_t row, size_t width, std::vector<uint16_t>& to) {
    const auto own = rows.subspan(static_cast<size_t>(row) * width, width);
    to.insert(to.end(), own.begin(), own.end());
  };
  for (size_t i = 0; i < sample.rows.size(); ++i) {
    const int32_t row = sample.rows[i];
    if (shard.shape.n_embd > 0)
      keep(hidden_[layer], row, shard.shape.n_embd, out.x);
    if (shard.shape.n_kv > 0)
      keep(key_value_[layer], row, shard.shape.n_kv, out.kv);
    for (size_t h = 0; h < n_heads; ++h)
      out.y.push_back(labels[h].all[static_cast<size_t>(row)]);
    for (size_t h = 0; i < sample.n_aged && h < n_heads; ++h)
      out.late.push_back(labels[h].late[static_cast<size_t>(row)]);
  }
}

// in: at the cut; with the full cache a row's index is its position.
void Collector::take_features(const eviction::LayerInput& in, const Sample& sample, Shard& shard) const {
  const auto layer = static_cast<size_t>(in.heads.front().layer);
  const gate::AgeingInfo info{
      .features = features_of(shard.shape.features), .width = 0, .window = options_.labels.window};
  const size_t n_features = info.features.size();
  std::vector<std::vector<float>> features(in.heads.size());
  for_each_index(*engine_.compute, static_cast<int>(in.heads.size()), [&](int h) {
    features[static_cast<size_t>(h)] = eviction::ageing_features(in.heads[static_cast<size_t>(h)], info);
  });
  for (size_t i = 0; i < sample.n_aged; ++i) {
    for (const std::vector<float>& head : features) {
      const auto own = std::span(head).subspan(static_cast<size_t>(sample.rows[i]) * n_features, n_features);
      std::ranges::transform(own, std::back_inserter(shard.layers[layer].features), f32_to_f16);
    }
  }
}

// The whole window: what the append stage sees, and what became of the rows.
Status Collector::read_labels(std::span<const Token> tokens, const Sample& sample, Shard& shard) {
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
  const auto make_room = [&](std::vector<std::vector<uint16_t>>& layers, size_t width) {
    layers.resize(static_cast<size_t>(hyper.n_layers));
    for (std::vector<uint16_t>& layer : layers)
      layer.resize(static_cast<size_t>(n) * width);
  };
  make_room(hidden_, shard.shape.n_embd);
  make_room(key_value_, shard.shape.n_kv);
  (*timeline)->watch([&](const eviction::LayerInput& in) { take_layer(in, sample, shard); });
  return (*timeline)->prefill(tokens, {});
}

// The tokens before the cut once more, for what is recorded token by token: what an eviction there would see of its
// rows.
Status Collector::read_features(std::span<const Token> tokens, const Sample& sample, Shard& shard) const {
  SessionOptions options;
  options.budget = *parse_budget("50%");
  options.policy = policy_for(shard.shape.features);
  options.order = PrefillOrder::layer_major;
  options.expected_prompt = sample.cut;
  options.expected_generated = 0;
  options.n_observed = options_.labels.window;
  Result<std::unique_ptr<session::Timeline>> timeline = session::Timeline::create(engine_, options);
  if (!timeline)
    return timeline.error();
  (*timeline)->watch([&](const eviction::LayerInput& in) { take_features(in, sample, shard); });
  return (*timeline)->prefill(tokens.first(static_cast<size_t>(sample.cut)), {});
}

Result<Shard> Collector::read(std::span<const Token> tokens, uint64_t index) {
  const Sample sample = this->sample(static_cast<int64_t>(tokens.size()), index);
  Shard shard = empty_shard(sample);
  Status status = read_labels(tokens, sample, shard);
  if (status && reads_twice(shard.shape.features))
    status = read_features(tokens, sample, shard);
  if (!status)
    return status.error();
  return shard;
}

}  // namespace kedge::train
