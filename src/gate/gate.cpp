#include "gate/gate.h"

#include <cmath>
#include <utility>

#include "gate/open_gate.h"

namespace kedge::gate {
namespace {

double gelu(double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }

// f64 [n_out]: b + W x.
std::vector<double> affine(std::span<const float> w, std::span<const float> b, std::span<const double> x) {
  std::vector<double> out(b.begin(), b.end());
  for (size_t i = 0; i < out.size(); ++i) {
    for (size_t j = 0; j < x.size(); ++j)
      out[i] += double{w[i * x.size() + j]} * x[j];
  }
  return out;
}

}  // namespace

int input_size(const GateInfo& info) {
  if (info.input == "none")
    return 0;
  return info.input == "key_value" ? 2 * info.model.n_kv_heads * info.model.head_dim : info.model.n_embd;
}

int64_t n_products(const GateInfo& info) {
  const int64_t n_inputs = input_size(info);
  const int64_t n_heads = info.model.n_kv_heads;
  if (n_inputs == 0)
    return 0;
  const int64_t a_layer = info.width > 0 ? int64_t{info.width} * (n_inputs + n_heads) : n_inputs * n_heads;
  return a_layer * info.model.n_layers;
}

std::vector<float> gate_logits(const GateInfo& info, const LayerGate& gate, std::span<const float> x) {
  const auto n_inputs = static_cast<size_t>(input_size(info));
  std::vector<float> out;
  for (size_t row = 0; row * n_inputs < x.size(); ++row) {
    const std::span<const float> one = x.subspan(row * n_inputs, n_inputs);
    std::vector<double> hidden(one.begin(), one.end());
    if (info.width > 0) {
      hidden = affine(gate.w1, gate.b1, hidden);
      for (double& unit : hidden)
        unit = gelu(unit);
    }
    for (const double logit : affine(gate.w2, gate.b2, hidden))
      out.push_back(static_cast<float>(logit));
  }
  return out;
}

Result<std::unique_ptr<GateNet>> GateNet::load(tensor::Compute& compute, const std::string& path,
                                               const GateModel& model) {
  Result<OpenGate> opened = open_gate(path, model);
  if (!opened)
    return opened.error();
  auto net = std::make_unique<GateNet>();
  net->file_ = std::move(opened->file);
  net->info_ = opened->gate.info;
  net->sha256_ = opened->sha256;
  net->thresholds_ = opened->gate.thresholds;
  net->ageing_ = opened->gate.ageing;
  Result<std::unique_ptr<tensor::Weights>> weights =
      tensor::Weights::create(compute, *net->file_, {.prompt_weights = tensor::PromptWeights::native, .repack = false});
  if (!weights)
    return weights.error();
  net->weights_ = *std::move(weights);
  for (int layer = 0; input_size(net->info_) > 0 && layer < net->info_.model.n_layers; ++layer) {
    const std::string prefix = "gate." + std::to_string(layer) + ".";
    net->layers_.push_back({.w1 = net->weights_->find(prefix + "w1"),
                            .b1 = net->weights_->find(prefix + "b1"),
                            .w2 = net->weights_->find(prefix + "w2"),
                            .b2 = net->weights_->find(prefix + "b2")});
  }
  return net;
}

tensor::Tensor GateNet::logits(tensor::Graph& graph, int layer, tensor::Tensor x) const {
  const Layer& own = layers_[static_cast<size_t>(layer)];
  if (own.w1 != nullptr)
    x = graph.affine(own.w1, own.b1, x, tensor::Graph::Activation::gelu);
  return graph.affine(own.w2, own.b2, x, tensor::Graph::Activation::none);
}

tensor::Tensor GateNet::logits(tensor::Graph& graph, int layer, const RowTensors& row) const {
  const bool is_hidden = info_.input == "hidden";
  return logits(graph, layer, is_hidden ? row.hidden : graph.beside(row.key, row.value));
}

}  // namespace kedge::gate
