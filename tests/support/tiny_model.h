// Small random models of the llama architecture as GGUF files that both this engine and libllama open.
// Seeded; scaled so that attention is far from uniform and logits are well spread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kedge::test {

enum class WeightType { f32, f16, q8_0, q4_1 };

struct TinyOptions {
  int n_layers = 2;
  int n_heads = 4;
  int n_kv_heads = 2;
  int head_dim = 64;
  int n_embd = 128;  // multiple of 32 for the quantised types
  int n_ff = 256;
  int n_vocab = 320;  // at least 258: 256 bytes, <|endoftext|>, <|im_end|>
  int n_ctx_train = 4096;
  WeightType weights = WeightType::f32;
  float rope_base = 10000.0F;
  std::string rope_scaling = "";  // linear | yarn
  float rope_factor = 1.0F;       // of linear and yarn
  int rope_ctx_orig = 0;          // yarn: context before scaling
  bool rope_freqs = false;        // a rope_freqs.weight tensor, as Llama 3.1 has
  bool biases = false;            // on q, k, v (needs n_heads * head_dim == n_embd in libllama)
  bool tied = false;              // output = token embeddings
  float qk_gain = 1.2F;           // attention logits have a standard deviation of about its square
  float branch_gain = 0.4F;  // what a layer adds to the residual stream; f16 rows cost up to 2e-3 of a logit at 1.0
  uint32_t seed = 1;
};

// All weights as f32, row-major, slowest dimension first.
struct TinyLayer {
  std::vector<float> attn_norm;   // [n_embd]
  std::vector<float> wq, wk, wv;  // [n_heads * head_dim, n_embd], [n_kv_heads * head_dim, n_embd] twice
  std::vector<float> bq, bk, bv;  // empty without biases
  std::vector<float> wo;          // [n_embd, n_heads * head_dim]
  std::vector<float> ffn_norm;    // [n_embd]
  std::vector<float> gate, up;    // [n_ff, n_embd]
  std::vector<float> down;        // [n_embd, n_ff]
};
struct TinyWeights {
  TinyOptions options;
  std::vector<float> embed;        // [n_vocab, n_embd]
  std::vector<float> output_norm;  // [n_embd]
  std::vector<float> output;       // [n_vocab, n_embd]; empty when tied
  std::vector<float> rope_freqs;   // [head_dim / 2]; empty without
  std::vector<TinyLayer> layers;
};

inline constexpr float kTinyNormEps = 1e-5F;

TinyWeights make_tiny_weights(const TinyOptions& options);
// Writes the file; aborts the test program when the disk does not take it.
void write_tiny_model(const TinyWeights& weights, const std::string& path);
// n random tokens, none of them special.
std::vector<int32_t> random_tokens(int n, uint32_t seed);

}  // namespace kedge::test
