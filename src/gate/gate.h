// The discard gate: a small network in each layer that says of every row, for each kv head, whether it will be needed.
//
//   x: the row behind the attention's norm, f32 [n_embd]: what W_Q, W_K and W_V see
//   hidden[j] = gelu(b1[j] + w1[j] . x)      j < width; a linear gate has no hidden layer and hidden = x
//   logit[h]  = b2[h] + w2[h] . hidden       keep probability = 1 / (1 + exp(-logit))
//
// gelu is the exact one, by erf. A gate belongs to one model and lies beside it in a GGUF file of its own
// (docs/gate.md): KVzap, arXiv 2601.07891; Fast KVzip, arXiv 2601.17668.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kedge/error.h"
#include "tensor/compute.h"
#include "tensor/gguf_file.h"

namespace kedge::gate {

inline constexpr uint32_t kGateVersion = 1;
inline constexpr const char* kGateArchitecture = "kedge-gate";  // general.architecture

// What a gate must agree with.
struct GateModel {
  std::string architecture;
  std::string sha256;  // session/model_identity.h
  int n_layers = 0;
  int n_embd = 0;
  int n_kv_heads = 0;
};

struct GateInfo {
  std::string name;  // general.name
  GateModel model;
  std::string input = "hidden";  // what x is
  int width = 0;                 // 0: linear
  int window = 0;                // rows that were protected in training
  int sinks = 0;
  std::string training_data;         // names
  std::string training_data_sha256;  // of all of it
  std::string training_loss;
};

int64_t n_products(const GateInfo& info);  // multiplications of a token, all layers

struct LayerGate {
  std::vector<float> w1;  // f32 [width][n_embd]
  std::vector<float> b1;  // f32 [width]
  std::vector<float> w2;  // f32 [n_kv_heads][width, or n_embd where linear]
  std::vector<float> b2;  // f32 [n_kv_heads]
};

// Probability above which the share `keep` of rows lies, on the training's held-out text.
struct KeepThreshold {
  float keep = 0;
  float threshold = 0;
};

struct Gate {
  GateInfo info;
  std::vector<LayerGate> layers;
  std::vector<KeepThreshold> thresholds;  // ascending by keep
};

// Plain loops, sums in double: the oracle of the graph's. x f32 [n][n_embd] -> f32 [n][n_kv_heads].
std::vector<float> gate_logits(const GateInfo& info, const LayerGate& gate, std::span<const float> x);

// Matrices as q8_0 where their rows are whole blocks of 32, else f32. Error failed.
Status save_gate(const Gate& gate, const std::string& path);
std::vector<std::byte> gate_bytes(const Gate& gate);

// Dequantised. Errors model_unreadable: names key or tensor, what was found, what is allowed.
Result<Gate> read_gate(const tensor::GgufFile& file);
// Error model_unreadable with both values, unless the gate is of this model.
Status same_model(const GateModel& gate, const GateModel& model, const std::string& path);

// A gate as nodes of a model's graphs.
class GateNet {
 public:
  // Errors: those of GgufFile::open, read_gate() and same_model().
  static Result<std::unique_ptr<GateNet>> load(tensor::Compute& compute, const std::string& path,
                                               const GateModel& model);
  const GateInfo& info() const { return info_; }
  const std::string& sha256() const { return sha256_; }  // of the file
  const tensor::Weights& weights() const { return *weights_; }
  std::span<const KeepThreshold> thresholds() const { return thresholds_; }
  // x f32 [n, n_embd] -> logits f32 [n, n_kv_heads]
  tensor::Tensor logits(tensor::Graph& graph, int layer, tensor::Tensor x) const;

 private:
  struct Layer {
    tensor::Tensor w1 = nullptr, b1 = nullptr, w2 = nullptr, b2 = nullptr;
  };
  std::unique_ptr<tensor::GgufFile> file_;
  std::unique_ptr<tensor::Weights> weights_;
  GateInfo info_;
  std::string sha256_;
  std::vector<KeepThreshold> thresholds_;
  std::vector<Layer> layers_;
};

}  // namespace kedge::gate
