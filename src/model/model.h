// A language model: hyper-parameters, weights, and how one layer becomes a graph. One file per architecture in archs/.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "attention/attention_port.h"
#include "kedge/error.h"
#include "model/lora.h"
#include "tensor/compute.h"
#include "tensor/gguf_file.h"

namespace kedge::model {

struct HyperParams {
  std::string architecture;  // general.architecture
  std::string name;          // general.name, or the file's name
  int n_layers = 0;
  int n_embd = 0;
  int n_heads = 0;
  int n_kv_heads = 0;
  int head_dim = 0;
  int n_ff = 0;
  int n_vocab = 0;
  int n_ctx_train = 0;
  float norm_eps = 1e-5F;
  float attention_scale = 0;  // 1/sqrt(head_dim) unless the file says otherwise
  tensor::RopeParams rope;
  int64_t n_params = 0;
  int64_t weight_bytes = 0;
  std::string weight_type;  // most common type of the 2-D weights, e.g. "q4_1"
  int group() const { return n_heads / n_kv_heads; }
};

class Model {
 public:
  virtual ~Model() = default;
  const HyperParams& hyper() const { return hyper_; }
  const tensor::Weights& weights() const { return *weights_; }
  const tensor::GgufFile& file() const { return *file_; }

  // From now on graphs that are made have an adapter's part in their products; those that are there stay as they are,
  // and need it to stay. Errors: those of Lora::load; the model is then as it was.
  Status use_lora(tensor::Compute& compute, const LoraOptions& options);
  void drop_lora() { lora_.reset(); }
  const Lora* lora() const { return lora_.get(); }  // nullptr: none

  // ids i32 [n] -> f32 [n, n_embd]
  virtual tensor::Tensor embed(tensor::Graph& graph, tensor::Tensor ids) const = 0;
  // x f32 [n, n_embd], positions i32 [n] -> x after layer `layer`. `rows_out` > 0: only the last rows_out rows are
  // needed after attention (the last layer of a prompt), the result is then [rows_out, n_embd].
  virtual tensor::Tensor layer(tensor::Graph& graph, int layer, tensor::Tensor x, tensor::Tensor positions,
                               int64_t rows_out, attention::AttentionPort& port) const = 0;
  // How the heads' outputs enter the residual stream, dequantised: f32 [n_heads * head_dim][n_embd], without bias, with
  // an adapter's part.
  // n_heads * head_dim * n_embd * 4 bytes: 1.3 MB for a model of 135 M parameters, 67 MB for one of 8 G.
  virtual std::vector<float> output_projection(int layer) const = 0;
  // x f32 [n, n_embd] -> logits f32 [n, n_vocab]
  virtual tensor::Tensor head(tensor::Graph& graph, tensor::Tensor x) const = 0;

 protected:
  // Names of the matrices that an adapter may change.
  virtual std::vector<std::string> adaptable() const = 0;

  HyperParams hyper_;
  std::unique_ptr<tensor::GgufFile> file_;
  std::unique_ptr<tensor::Weights> weights_;

 private:
  std::unique_ptr<Lora> lora_;
};

// Reads the file, finds the architecture, checks all it needs. Errors: model_unreadable, one line naming key or tensor.
Result<std::unique_ptr<Model>> load_model(tensor::Compute& compute, const std::string& path,
                                          const tensor::WeightOptions& options);
// Architectures in archs/ (generated from the folder's listing).
std::vector<std::string> known_architectures();

}  // namespace kedge::model
