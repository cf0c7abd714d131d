// The plainest attention there is, for tests of this folder: f32 rows in vectors, two passes, one thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "attention/attention_port.h"
#include "model/model.h"

namespace kedge::model {

class NaiveAttention final : public attention::AttentionPort {
 public:
  explicit NaiveAttention(const HyperParams& hyper) : hyper_(hyper), layers_(static_cast<size_t>(hyper.n_layers)) {
    for (LayerState& layer : layers_)
      layer.hyper = &hyper_;
  }

  tensor::Tensor attend(tensor::Graph& graph, int layer, tensor::Tensor q, tensor::Tensor k, tensor::Tensor v,
                        const attention::RowOrigin& /*origin*/) override {
    const tensor::Tensor inputs[] = {q, k, v};
    return graph.custom(inputs, tensor::n_rows(q), tensor::n_cols(q), attend_layer,
                        &layers_[static_cast<size_t>(layer)]);
  }
  size_t n_rows() const { return layers_[0].k.size() / static_cast<size_t>(hyper_.n_kv_heads * hyper_.head_dim); }

 private:
  struct LayerState {
    const HyperParams* hyper = nullptr;
    std::vector<float> k, v;  // f32 [n_rows, n_kv_heads * head_dim]
  };

  static void attend_layer(ggml_tensor* dst, int ith, int /*nth*/, void* user) {
    if (ith != 0)
      return;
    auto& state = *static_cast<LayerState*>(user);
    const HyperParams& h = *state.hyper;
    const int d = h.head_dim;
    const int64_t n = tensor::n_rows(dst);
    const int64_t n_kv = int64_t{h.n_kv_heads} * d;
    const float* q = tensor::f32_data(tensor::custom_input(dst, 0));
    const float* k = tensor::f32_data(tensor::custom_input(dst, 1));
    const float* v = tensor::f32_data(tensor::custom_input(dst, 2));
    const int64_t first = static_cast<int64_t>(state.k.size()) / n_kv;
    state.k.insert(state.k.end(), k, k + n * n_kv);
    state.v.insert(state.v.end(), v, v + n * n_kv);
    std::vector<double> weight;
    for (int64_t t = 0; t < n; ++t) {
      for (int head = 0; head < h.n_heads; ++head) {
        const int64_t n_visible = first + t + 1;
        const float* query = q + (t * h.n_heads + head) * d;
        float* y = tensor::f32_data(dst) + (t * h.n_heads + head) * d;
        const int64_t kv_offset = int64_t{head / h.group()} * d;
        weight.assign(static_cast<size_t>(n_visible), 0.0);
        for (int64_t i = 0; i < n_visible; ++i) {
          for (int e = 0; e < d; ++e)
            weight[static_cast<size_t>(i)] +=
                static_cast<double>(query[e]) *
                static_cast<double>(state.k[static_cast<size_t>(i * n_kv + kv_offset + e)]);
        }
        const double top = *std::max_element(weight.begin(), weight.end());
        double sum = 0;
        for (double& w : weight)
          sum += w = std::exp((w - top) * static_cast<double>(h.attention_scale));
        for (int e = 0; e < d; ++e) {
          double total = 0;
          for (int64_t i = 0; i < n_visible; ++i)
            total += weight[static_cast<size_t>(i)] *
                     static_cast<double>(state.v[static_cast<size_t>(i * n_kv + kv_offset + e)]);
          y[e] = static_cast<float>(total / sum);
        }
      }
    }
  }

  HyperParams hyper_;
  std::vector<LayerState> layers_;
};

}  // namespace kedge::model
