// The weights of a GGUF file, dequantised, as tensors that never learn, and one layer of the architecture `llama` as a
// function that gradients pass through. Same formulas as src/model/archs/llama.cpp.
#pragma once

#include <ATen/Tensor.h>

#include <functional>
#include <vector>

#include "kedge/error.h"
#include "session/timeline.h"
#include "train_lm/gated_attention.h"

namespace kedge::lm {

struct FrozenLayer {
  at::Tensor attn_norm, ffn_norm;  // [n_embd]
  at::Tensor w_q, b_q;             // [n_heads * head_dim, n_embd]: heads as halves (ops.h), scaled for attention
  at::Tensor w_k, b_k;             // [n_kv_heads * head_dim, n_embd]: halves too
  at::Tensor w_v, b_v;
  at::Tensor w_o, b_o;              // [n_embd, n_heads * head_dim]
  at::Tensor w_gate_up, b_gate_up;  // [2 * n_ff, n_embd]
  at::Tensor w_down, b_down;        // [n_embd, n_ff]; biases are undefined where the file has none
};

struct FrozenModel {
  int n_layers = 0, n_embd = 0, n_heads = 0, n_kv_heads = 0, head_dim = 0, n_ff = 0, n_vocab = 0;
  double norm_eps = 0;
  double attention_scale = 1;  // part of w_q and b_q
  at::Tensor embed;            // [n_vocab, n_embd]
  at::Tensor output;           // [n_vocab, n_embd]; the embeddings where tied
  at::Tensor output_bf16;      // the same, for gradients; undefined unless products are bf16
  at::Tensor output_norm;      // [n_embd]
  at::Tensor frequency;        // [head_dim / 2]
  double magnitude = 1;        // of the rotation (YaRN)
  std::vector<FrozenLayer> layers;
  at::TensorOptions options() const { return embed.options(); }
};

// type: at::kFloat, or at::kDouble to check gradients. bf16: the layers' matrices are held so, and their products take
// and give bf16, which processors that have it do several times faster; streams, attention and logits stay as they are.
// Error usage: another architecture than llama.
Result<FrozenModel> freeze(const model::Model& model, at::ScalarType type, bool bf16 = false);
// Whether this processor multiplies bf16 matrices natively and libtorch can use that.
bool bf16_is_fast();

// Output dimensions of n_heads heads from pairs (2i, 2i + 1), as the file has them, to halves (i, i + head_dim / 2):
// products of queries and keys are the same in either order. weight [n_heads * head_dim, ...], or undefined.
at::Tensor as_halves(const at::Tensor& weight, int64_t n_heads);

struct Rotation {
  at::Tensor cosine, sine;  // [n, 1, head_dim / 2]
};
Rotation rotation_of(const FrozenModel& model, int64_t n);
Rotation part_of(const Rotation& all, int64_t begin, int64_t end);  // positions [begin, end)

// What a reading of the text leaves behind in a layer.
struct LayerRows {
  at::Tensor x;  // [n, n_embd]: behind the attention's norm, what a gate sees
  at::Tensor k;  // [n, n_kv_heads, head_dim], rotated
  at::Tensor v;
};

// What an adapter adds to a layer's projections, B (A x); rows of B lie as those of the weights do.
struct LoraProduct {
  at::Tensor a, b;  // [rank, n_in], [n_out, rank]
};
struct LayerLora {
  LoraProduct q, k, v, o;
};

struct LayerCall {
  const Rotation& rotation;
  GatedRows gated = {};
  // Of x: what the rows' gates let through, [n, n_kv_heads] in 0..1. Empty: everything.
  std::function<at::Tensor(const at::Tensor& x)> gate = {};
  const LayerRows* rows = nullptr;  // the rows of another reading instead of this one's own
  LayerRows* keep_rows = nullptr;   // may be nullptr
  // Keys and values of the tokens before x's, which are a tail then, and what the gates of those rows let through
  // (tail_attention.h; undefined: everything). `rotation` is that of x's positions.
  const LayerRows* before = nullptr;
  at::Tensor through = {};
  const LayerLora* lora = nullptr;  // likewise
};

// The stream x [n, n_embd] after a layer.
at::Tensor run_layer(const FrozenModel& model, int layer, const at::Tensor& x, const LayerCall& call);

// Queries of tokens whose rows behind the attention's norm are x [n, n_embd], as run_layer() makes them: scaled,
// rotated, [n, n_heads, head_dim].
at::Tensor queries_of(const FrozenModel& model, int layer, const at::Tensor& x, const Rotation& rotation);

// tokens i64 [n] -> [n, n_embd]; and what the output matrix is multiplied with.
at::Tensor embed(const FrozenModel& model, const at::Tensor& tokens);
at::Tensor final_norm(const FrozenModel& model, const at::Tensor& x);

class LearnedLora;
// Logits of every position, [n, n_vocab], with the full cache, and with an adapter or without: for tests.
at::Tensor full_logits(const FrozenModel& model, const at::Tensor& tokens, const LearnedLora* lora = nullptr);

}  // namespace kedge::lm
