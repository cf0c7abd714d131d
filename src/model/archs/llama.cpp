// Architecture "llama": Llama 1-3, SmolLM, Mistral-style models. Pre-norm transformer, RoPE on pairs (2i, 2i+1),
// grouped queries, SwiGLU. Names and order of operations as in GGUF and libllama, so that results agree to rounding.
#include <cmath>

#include "model/arch.h"
#include "tensor/types.h"

namespace kedge::model {
namespace {

using tensor::Graph;
using tensor::Tensor;

struct Layer {
  Tensor attn_norm = nullptr;                       // f32 [n_embd]
  Tensor wq = nullptr, wk = nullptr, wv = nullptr;  // [n_heads * head_dim | n_kv_heads * head_dim, n_embd]
  Tensor wo = nullptr;                              // [n_embd, n_heads * head_dim]
  Tensor bq = nullptr, bk = nullptr, bv = nullptr, bo = nullptr;       // optional
  Tensor ffn_norm = nullptr;                                           // f32 [n_embd]
  Tensor gate = nullptr, up = nullptr;                                 // [n_ff, n_embd]
  Tensor down = nullptr;                                               // [n_embd, n_ff]
  Tensor gate_bias = nullptr, up_bias = nullptr, down_bias = nullptr;  // optional
};

class Llama final : public Model {
 public:
  Status load(ArchInput input);
  Tensor embed(Graph& graph, Tensor ids) const override { return graph.get_rows(token_embd_, ids); }
  Tensor layer(Graph& graph, int layer, Tensor x, Tensor positions, int64_t rows_out,
               attention::AttentionPort& port) const override;
  std::vector<float> output_projection(int layer) const override;
  Tensor head(Graph& graph, Tensor x) const override {
    return graph.matmul(output_, graph.rms_norm(x, output_norm_, hyper_.norm_eps));
  }

 protected:
  std::vector<std::string> adaptable() const override;

 private:
  Status read_keys();
  Status read_tensors();
  Tensor project(Graph& graph, Tensor weight, Tensor bias, Tensor x) const;
  Layer read_layer(TensorReader& tensors, int il) const;

  Tensor token_embd_ = nullptr;   // [n_vocab, n_embd]
  Tensor output_norm_ = nullptr;  // f32 [n_embd]
  Tensor output_ = nullptr;       // [n_vocab, n_embd]; the embedding table when tied
  std::vector<Layer> layers_;
};

Status Llama::read_keys() {
  KeyReader keys(*file_, "llama");
  HyperParams& h = hyper_;
  h.architecture = "llama";
  describe(*file_, h);
  if (keys.optional("expert_count", 0, 0, 1 << 20) > 0)
    keys.refuse("expert_count", "a mixture of experts", "0 (dense models)");
  h.n_layers = keys.required("block_count", 1, 1024);
  h.n_ctx_train = keys.required("context_length", 1, 1 << 30);
  h.n_embd = keys.required("embedding_length", 1, 1 << 20);
  h.n_ff = keys.required("feed_forward_length", 1, 1 << 22);
  h.n_heads = keys.required("attention.head_count", 1, 1024);
  h.n_kv_heads = keys.optional("attention.head_count_kv", h.n_heads, 1, 1024);
  h.norm_eps = keys.required_f32("attention.layer_norm_rms_epsilon", 0.0F, 1.0F);
  if (Status s = keys.status(); !s)
    return s;
  if (h.n_heads % h.n_kv_heads != 0)
    keys.refuse("attention.head_count_kv", std::to_string(h.n_kv_heads),
                "divisors of head_count " + std::to_string(h.n_heads));
  if (!keys.has("attention.key_length") && h.n_embd % h.n_heads != 0) {
    keys.refuse("attention.head_count", std::to_string(h.n_heads),
                "divisors of embedding_length " + std::to_string(h.n_embd));
  }
  h.head_dim = keys.optional("attention.key_length", h.n_embd / h.n_heads, 1, 1 << 16);
  if (h.head_dim % 16 != 0 || h.head_dim > 256)
    keys.refuse("attention.key_length", std::to_string(h.head_dim), "multiples of 16 up to 256");
  const int value_length = keys.optional("attention.value_length", h.n_embd / h.n_heads, 1, 1 << 16);
  if (value_length != h.head_dim)
    keys.refuse("attention.value_length", std::to_string(value_length), std::to_string(h.head_dim) + " (key_length)");
  const int n_rot = keys.optional("rope.dimension_count", h.head_dim, 1, 1 << 16);
  if (n_rot != h.head_dim)
    keys.refuse("rope.dimension_count", std::to_string(n_rot), std::to_string(h.head_dim) + " (key_length)");
  // libllama ignores this key for llama; a window shorter than the context would give other answers than the model's
  // authors'.
  const int window = keys.optional("attention.sliding_window", 0, 0, 1 << 30);
  if (window > 0 && window < h.n_ctx_train)
    keys.refuse("attention.sliding_window", std::to_string(window),
                "none, or " + std::to_string(h.n_ctx_train) + " (context_length) and more");
  h.attention_scale = 1.0F / std::sqrt(static_cast<float>(h.head_dim));
  h.rope = read_rope(keys, n_rot, h.n_ctx_train);
  return keys.status();
}

Layer Llama::read_layer(TensorReader& tensors, int il) const {
  const HyperParams& h = hyper_;
  const std::string p = "blk." + std::to_string(il) + ".";
  const int64_t n_q = int64_t{h.n_heads} * h.head_dim;
  const int64_t n_kv = int64_t{h.n_kv_heads} * h.head_dim;
  return {
      .attn_norm = tensors.vector(p + "attn_norm.weight", h.n_embd),
      .wq = tensors.matrix(p + "attn_q.weight", h.n_embd, n_q),
      .wk = tensors.matrix(p + "attn_k.weight", h.n_embd, n_kv),
      .wv = tensors.matrix(p + "attn_v.weight", h.n_embd, n_kv),
      .wo = tensors.matrix(p + "attn_output.weight", n_q, h.n_embd),
      .bq = tensors.optional_vector(p + "attn_q.bias", n_q),
      .bk = tensors.optional_vector(p + "attn_k.bias", n_kv),
      .bv = tensors.optional_vector(p + "attn_v.bias", n_kv),
      .bo = tensors.optional_vector(p + "attn_output.bias", h.n_embd),
      .ffn_norm = tensors.vector(p + "ffn_norm.weight", h.n_embd),
      .gate = tensors.matrix(p + "ffn_gate.weight", h.n_embd, h.n_ff),
      .up = tensors.matrix(p + "ffn_up.weight", h.n_embd, h.n_ff),
      .down = tensors.matrix(p + "ffn_down.weight", h.n_ff, h.n_embd),
      .gate_bias = tensors.optional_vector(p + "ffn_gate.bias", h.n_ff),
      .up_bias = tensors.optional_vector(p + "ffn_up.bias", h.n_ff),
      .down_bias = tensors.optional_vector(p + "ffn_down.bias", h.n_embd),
  };
}

Status Llama::read_tensors() {
  TensorReader tensors(*file_, *weights_);
  const HyperParams& h = hyper_;
  token_embd_ = tensors.matrix("token_embd.weight", h.n_embd, h.n_vocab);
  output_norm_ = tensors.vector("output_norm.weight", h.n_embd);
  output_ = tensors.optional_matrix("output.weight", h.n_embd, h.n_vocab);
  if (output_ == nullptr)
    output_ = token_embd_;
  hyper_.rope.freq_factors =
      tensors.optional_vector("rope_freqs.weight", h.rope.n_dims / 2);  // Llama 3's long-context scaling
  for (int il = 0; il < h.n_layers; ++il)
    layers_.push_back(read_layer(tensors, il));
  return tensors.finish();
}

Status Llama::load(ArchInput input) {
  file_ = std::move(input.file);
  if (Status s = read_keys(); !s)
    return s;
  const Result<const tensor::TensorInfo*> table = file_->require("token_embd.weight", {hyper_.n_embd, 0});
  if (!table)
    return table.error();
  if ((*table)->ne[1] > (1 << 24))
    return Error{ErrorCode::model_unreadable, file_->path() + ": tensor 'token_embd.weight': found " +
                                                  std::to_string((*table)->ne[1]) + " tokens, allowed 1..16777216"};
  hyper_.n_vocab = static_cast<int>((*table)->ne[1]);
  if (file_->has("tokenizer.ggml.tokens")) {
    const Result<int64_t> n_tokens = file_->array_length("tokenizer.ggml.tokens");
    if (!n_tokens)
      return n_tokens.error();
    if (*n_tokens != hyper_.n_vocab) {
      return Error{ErrorCode::model_unreadable, file_->path() + ": key 'tokenizer.ggml.tokens': found " +
                                                    std::to_string(*n_tokens) + " tokens, allowed " +
                                                    std::to_string(hyper_.n_vocab) + " (rows of token_embd.weight)"};
    }
  }
  Result<std::unique_ptr<tensor::Weights>> weights = tensor::Weights::create(input.compute, *file_, input.options);
  if (!weights)
    return weights.error();
  weights_ = *std::move(weights);
  return read_tensors();
}

std::vector<std::string> Llama::adaptable() const {
  std::vector<std::string> names;
  for (int il = 0; il < hyper_.n_layers; ++il) {
    for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"})
      names.push_back("blk." + std::to_string(il) + "." + name + ".weight");
  }
  return names;
}

std::vector<float> Llama::output_projection(int layer) const {
  const std::string name = "blk." + std::to_string(layer) + ".attn_output.weight";
  std::vector<float> transposed = transposed_f32(*file_, name);
  if (lora() != nullptr)
    lora()->add_transposed(name, transposed);
  return transposed;
}

Tensor Llama::project(Graph& graph, Tensor weight, Tensor bias, Tensor x) const {
  Tensor y = graph.matmul(weight, x);
  if (lora() != nullptr)
    y = lora()->added(graph, weight, x, y);
  return bias == nullptr ? y : graph.add(y, bias);
}

Tensor Llama::layer(Graph& graph, int layer, Tensor x, Tensor positions, int64_t rows_out,
                    attention::AttentionPort& port) const {
  const HyperParams& h = hyper_;
  const Layer& l = layers_[static_cast<size_t>(layer)];
  const int64_t n = tensor::n_rows(x);

  Tensor normed = graph.rms_norm(x, l.attn_norm, h.norm_eps);                                           // [n, n_embd]
  Tensor q = graph.rope(project(graph, l.wq, l.bq, normed), h.n_heads, h.head_dim, positions, h.rope);  // [n, n_heads *
                                                                                                        // head_dim]
  Tensor upright = project(graph, l.wk, l.bk, normed);                          // [n, n_kv_heads * head_dim]
  Tensor k = graph.rope(upright, h.n_kv_heads, h.head_dim, positions, h.rope);  // the same
  Tensor v = project(graph, l.wv, l.bv, normed);                                // the same
  Tensor y = port.attend(graph, layer, q, k, v, {normed, upright, v});          // [n, n_heads * head_dim]
  if (rows_out > 0 && rows_out < n) {
    // Nothing after attention mixes rows: the rest of the last layer is needed only for rows whose logits are.
    x = graph.row_slice(x, n - rows_out, rows_out);
    y = graph.row_slice(y, n - rows_out, rows_out);
  }
  Tensor attended = graph.add(project(graph, l.wo, l.bo, y), x);  // [rows, n_embd]
  Tensor ffn_in = graph.rms_norm(attended, l.ffn_norm, h.norm_eps);
  Tensor up = project(graph, l.up, l.up_bias, ffn_in);                        // [rows, n_ff]
  Tensor gate = project(graph, l.gate, l.gate_bias, ffn_in);                  // [rows, n_ff]
  Tensor down = project(graph, l.down, l.down_bias, graph.swiglu(gate, up));  // [rows, n_embd]
  return graph.add(down, attended);
}

}  // namespace

ArchLoader load_llama;

Result<std::unique_ptr<Model>> load_llama(ArchInput input) {
  auto model = std::make_unique<Llama>();
  if (Status s = model->load(std::move(input)); !s)
    return s.error();
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace kedge::model
