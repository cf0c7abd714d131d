// The discard gate: a small network in each layer that says of every row, for each kv head, whether it will be needed.
//
//   x: what the file's `input` names: the row behind the attention's norm, f32 [n_embd], which W_Q, W_K and W_V see, or
//      its keys before their rotation and its values, f32 [2][n_kv_heads][head_dim]; or nothing
//   hidden[j] = gelu(b1[j] + w1[j] . x)      j < width; a linear gate has no hidden layer and hidden = x
//   logit[h]  = b2[h] + w2[h] . hidden       keep probability = 1 / (1 + exp(-logit))
//
// That is the append stage, which judges a row once, when it is written. An ageing stage (gate/ageing.h) may judge rows
// again, with this logit as one of its features or without; one of the two there is.
//
// gelu is the exact one, by erf. A gate belongs to one model and lies beside it in a GGUF file of its own
// (docs/gate.md): KVzap, arXiv 2601.07891; Fast KVzip, arXiv 2601.17668.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gate/ageing.h"
#include "kedge/error.h"
#include "tensor/compute.h"
#include "tensor/gguf_file.h"

namespace kedge::gate {

// Of a file: 1 has the hidden row as its input and no ageing stage.
inline constexpr uint32_t kGateVersion = 2;
inline constexpr const char* kGateArchitecture = "kedge-gate";  // general.architecture

// What a gate must agree with.
struct GateModel {
  std::string architecture;
  std::string sha256;  // session/model_identity.h
  int n_layers = 0;
  int n_embd = 0;
  int n_kv_heads = 0;
  int head_dim = 0;  // 0: not known, as in files of version 1
};

// What the append stage sees: hidden, key_value, or none where there is no such stage.
inline constexpr const char* kInputs[] = {"hidden", "key_value", "none"};

// Which rows its logits rank: those of one kv head, or of all layers and heads together, as a gate learns to do that is
// taught through the model with one threshold for all.
inline constexpr const char* kRanks[] = {"head", "model"};

struct GateInfo {
  std::string name;  // general.name
  GateModel model;
  std::string input = "hidden";  // of kInputs
  int width = 0;                 // 0: linear
  int window = 0;                // rows that were protected in training
  int sinks = 0;
  std::string ranks = "head";        // of kRanks
  std::string training_data;         // names
  std::string training_data_sha256;  // of all of it
  std::string training_loss;
};

int input_size(const GateInfo& info);      // columns of x; 0: none
int64_t n_products(const GateInfo& info);  // multiplications of a token in the append stage, all layers

struct LayerGate {
  std::vector<float> w1;  // f32 [width][input_size]
  std::vector<float> b1;  // f32 [width]
  std::vector<float> w2;  // f32 [n_kv_heads][width, or input_size where linear]
  std::vector<float> b2;  // f32 [n_kv_heads]
};

// Probability above which the share `keep` of rows lies, on the training's held-out text.
struct KeepThreshold {
  float keep = 0;
  float threshold = 0;
};

struct Gate {
  GateInfo info;
  std::vector<LayerGate> layers;          // without an append stage: none
  std::vector<KeepThreshold> thresholds;  // ascending by keep; of the append stage where there is one
  Ageing ageing = {};
};

// Plain loops, sums in double: the oracle of the graph's. x f32 [n][input_size] -> f32 [n][n_kv_heads].
std::vector<float> gate_logits(const GateInfo& info, const LayerGate& gate, std::span<const float> x);

uint32_t gate_version(const Gate& gate);  // of the file that it is written to
// Matrices as q8_0 where their rows are whole blocks of 32, else f32. Error failed.
Status save_gate(const Gate& gate, const std::string& path);
std::vector<std::byte> gate_bytes(const Gate& gate);

// Dequantised. Errors model_unreadable: names key or tensor, what was found, what is allowed.
Result<Gate> read_gate(const tensor::GgufFile& file);
// Error model_unreadable with both values, unless the gate is of this model.
Status same_model(const GateModel& gate, const GateModel& model, const std::string& path);

// A row where the model's graph makes it: what an append stage may see. f32 [n, n_embd], [n, n_kv_heads * head_dim]
// before rotation, and the same.
struct RowTensors {
  tensor::Tensor hidden = nullptr;
  tensor::Tensor key = nullptr;
  tensor::Tensor value = nullptr;
};

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
  bool has_append_stage() const { return !layers_.empty(); }
  const Ageing* ageing() const { return ageing_.info.features.empty() ? nullptr : &ageing_; }
  // x f32 [n, input_size] -> logits f32 [n, n_kv_heads]; where there is an append stage.
  tensor::Tensor logits(tensor::Graph& graph, int layer, tensor::Tensor x) const;
  tensor::Tensor logits(tensor::Graph& graph, int layer, const RowTensors& row) const;  // of what it sees

 private:
  struct Layer {
    tensor::Tensor w1 = nullptr, b1 = nullptr, w2 = nullptr, b2 = nullptr;
  };
  std::unique_ptr<tensor::GgufFile> file_;
  std::unique_ptr<tensor::Weights> weights_;
  GateInfo info_;
  std::string sha256_;
  std::vector<KeepThreshold> thresholds_;
  std::vector<Layer> layers_;  // empty: no append stage
  Ageing ageing_;
};

}  // namespace kedge::gate
