#include "support/tiny_model.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>

#include "ggml.h"
#include "gguf.h"

namespace kedge::test {
namespace {

// Normal numbers from a fixed algorithm: the standard library's distributions differ between implementations.
class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  double uniform() { return (static_cast<double>(engine_()) + 0.5) / 4294967296.0; }
  float normal() {
    const double radius = std::sqrt(-2.0 * std::log(uniform()));
    return static_cast<float>(radius * std::cos(6.283185307179586 * uniform()));
  }
  std::vector<float> normals(int64_t n, float stddev, float mean = 0.0F) {
    std::vector<float> out(static_cast<size_t>(n));
    for (float& x : out)
      x = mean + stddev * normal();
    return out;
  }

 private:
  std::mt19937 engine_;
};

std::string utf8(int code) {
  if (code < 0x80)
    return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
}

// The byte alphabet of GPT-2's BPE: printable bytes stand for themselves, the others for code points from 256 on.
std::vector<std::string> byte_tokens() {
  std::vector<std::string> out;
  int next = 256;
  for (int b = 0; b < 256; ++b) {
    const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    out.push_back(utf8(printable ? b : next++));
  }
  return out;
}

void set_vocabulary(gguf_context* file, int n_vocab) {
  std::vector<std::string> tokens = byte_tokens();
  std::vector<int32_t> types(256, 1);  // normal
  tokens.insert(tokens.end(), {"<|endoftext|>", "<|im_end|>"});
  types.insert(types.end(), {3, 3});  // control
  while (static_cast<int>(tokens.size()) < n_vocab) {
    tokens.push_back("<unused" + std::to_string(tokens.size()) + ">");
    types.push_back(5);  // unused
  }
  std::vector<const char*> pointers;
  for (const std::string& t : tokens)
    pointers.push_back(t.c_str());
  const char* merges[] = {"t h", "i n"};  // their products are no tokens: never applied, but the key must be there
  gguf_set_val_str(file, "tokenizer.ggml.model", "gpt2");
  gguf_set_val_str(file, "tokenizer.ggml.pre", "smollm");
  gguf_set_arr_str(file, "tokenizer.ggml.tokens", pointers.data(), pointers.size());
  gguf_set_arr_data(file, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types.data(), types.size());
  gguf_set_arr_str(file, "tokenizer.ggml.merges", merges, 2);
  gguf_set_val_u32(file, "tokenizer.ggml.bos_token_id", 256);
  gguf_set_val_u32(file, "tokenizer.ggml.eos_token_id", 257);
  gguf_set_val_bool(file, "tokenizer.ggml.add_bos_token", false);
}

void set_hyper(gguf_context* file, const TinyOptions& o) {
  const auto u32 = [&](const char* key, int value) { gguf_set_val_u32(file, key, static_cast<uint32_t>(value)); };
  gguf_set_val_str(file, "general.architecture", "llama");
  gguf_set_val_str(file, "general.name", "tiny");
  u32("llama.block_count", o.n_layers);
  u32("llama.context_length", o.n_ctx_train);
  u32("llama.embedding_length", o.n_embd);
  u32("llama.feed_forward_length", o.n_ff);
  u32("llama.attention.head_count", o.n_heads);
  u32("llama.attention.head_count_kv", o.n_kv_heads);
  u32("llama.attention.key_length", o.head_dim);
  u32("llama.attention.value_length", o.head_dim);
  u32("llama.rope.dimension_count", o.head_dim);
  u32("llama.vocab_size", o.n_vocab);
  gguf_set_val_f32(file, "llama.attention.layer_norm_rms_epsilon", kTinyNormEps);
  gguf_set_val_f32(file, "llama.rope.freq_base", o.rope_base);
  if (!o.rope_scaling.empty()) {
    gguf_set_val_str(file, "llama.rope.scaling.type", o.rope_scaling.c_str());
    gguf_set_val_f32(file, "llama.rope.scaling.factor", o.rope_factor);
    if (o.rope_ctx_orig > 0)
      u32("llama.rope.scaling.original_context_length", o.rope_ctx_orig);
  }
}

ggml_type ggml_type_of(WeightType type) {
  switch (type) {
    case WeightType::f32:
      return GGML_TYPE_F32;
    case WeightType::f16:
      return GGML_TYPE_F16;
    case WeightType::q8_0:
      return GGML_TYPE_Q8_0;
    case WeightType::q4_1:
      return GGML_TYPE_Q4_1;
  }
  std::abort();
}

// Tensors live in one ggml context, which the file then copies out.
class TensorWriter {
 public:
  TensorWriter(gguf_context* file, ggml_context* memory, WeightType type) : file_(file), memory_(memory), type_(type) {}

  void vector(const std::string& name, const std::vector<float>& values) {
    if (values.empty())
      return;
    ggml_tensor* t = ggml_new_tensor_1d(memory_, GGML_TYPE_F32, static_cast<int64_t>(values.size()));
    std::copy(values.begin(), values.end(), static_cast<float*>(t->data));
    add(t, name);
  }
  void matrix(const std::string& name, const std::vector<float>& values, int64_t cols) {
    if (values.empty())
      return;
    const int64_t rows = static_cast<int64_t>(values.size()) / cols;
    ggml_tensor* t = ggml_new_tensor_2d(memory_, ggml_type_of(type_), cols, rows);
    ggml_quantize_chunk(ggml_type_of(type_), values.data(), t->data, 0, rows, cols, nullptr);
    add(t, name);
  }

 private:
  void add(ggml_tensor* t, const std::string& name) {
    ggml_set_name(t, name.c_str());
    gguf_add_tensor(file_, t);
  }
  gguf_context* file_;
  ggml_context* memory_;
  WeightType type_;
};

int64_t floats_in(const TinyWeights& w) {
  auto n = static_cast<int64_t>(w.embed.size() + w.output.size() + w.output_norm.size() + w.rope_freqs.size());
  for (const TinyLayer& l : w.layers) {
    n += static_cast<int64_t>(l.attn_norm.size() + l.wq.size() + l.wk.size() + l.wv.size() + l.bq.size() + l.bk.size() +
                              l.bv.size() + l.wo.size() + l.ffn_norm.size() + l.gate.size() + l.up.size() +
                              l.down.size());
  }
  return n;
}

void add_layer(TensorWriter& out, const TinyLayer& l, const TinyOptions& o, int index) {
  const std::string p = "blk." + std::to_string(index) + ".";
  out.vector(p + "attn_norm.weight", l.attn_norm);
  out.matrix(p + "attn_q.weight", l.wq, o.n_embd);
  out.matrix(p + "attn_k.weight", l.wk, o.n_embd);
  out.matrix(p + "attn_v.weight", l.wv, o.n_embd);
  out.vector(p + "attn_q.bias", l.bq);
  out.vector(p + "attn_k.bias", l.bk);
  out.vector(p + "attn_v.bias", l.bv);
  out.matrix(p + "attn_output.weight", l.wo, static_cast<int64_t>(o.n_heads) * o.head_dim);
  out.vector(p + "ffn_norm.weight", l.ffn_norm);
  out.matrix(p + "ffn_gate.weight", l.gate, o.n_embd);
  out.matrix(p + "ffn_up.weight", l.up, o.n_embd);
  out.matrix(p + "ffn_down.weight", l.down, o.n_ff);
}

TinyLayer make_layer(Random& random, const TinyOptions& o) {
  const int64_t q_rows = static_cast<int64_t>(o.n_heads) * o.head_dim;
  const int64_t kv_rows = static_cast<int64_t>(o.n_kv_heads) * o.head_dim;
  const float in = 1.0F / std::sqrt(static_cast<float>(o.n_embd));
  TinyLayer l;
  l.attn_norm = random.normals(o.n_embd, 0.1F, 1.0F);
  l.wq = random.normals(q_rows * o.n_embd, o.qk_gain * in);
  l.wk = random.normals(kv_rows * o.n_embd, o.qk_gain * in);
  l.wv = random.normals(kv_rows * o.n_embd, in);
  if (o.biases) {
    l.bq = random.normals(q_rows, 0.3F);
    l.bk = random.normals(kv_rows, 0.3F);
    l.bv = random.normals(kv_rows, 0.3F);
  }
  l.wo = random.normals(o.n_embd * q_rows, o.branch_gain / std::sqrt(static_cast<float>(q_rows)));
  l.ffn_norm = random.normals(o.n_embd, 0.1F, 1.0F);
  l.gate = random.normals(static_cast<int64_t>(o.n_ff) * o.n_embd, in);
  l.up = random.normals(static_cast<int64_t>(o.n_ff) * o.n_embd, in);
  l.down =
      random.normals(static_cast<int64_t>(o.n_embd) * o.n_ff, o.branch_gain / std::sqrt(static_cast<float>(o.n_ff)));
  return l;
}

}  // namespace

TinyWeights make_tiny_weights(const TinyOptions& o) {
  Random random(o.seed);
  TinyWeights w;
  w.options = o;
  // The residual stream starts at about 1 per element. A tied head multiplies with the embeddings themselves, so there
  // the last norm brings the logits to the same spread.
  const float out_std = 1.2F / std::sqrt(static_cast<float>(o.n_embd));
  w.embed = random.normals(static_cast<int64_t>(o.n_vocab) * o.n_embd, 1.0F);
  w.output_norm = random.normals(o.n_embd, 0.1F * (o.tied ? out_std : 1.0F), o.tied ? out_std : 1.0F);
  if (!o.tied)
    w.output = random.normals(static_cast<int64_t>(o.n_vocab) * o.n_embd, out_std);
  if (o.rope_freqs) {  // divisors of the frequencies, growing as Llama 3.1's do
    for (int i = 0; i < o.head_dim / 2; ++i) {
      const float x = static_cast<float>(i) / static_cast<float>(o.head_dim / 2);
      w.rope_freqs.push_back(x < 0.3F ? 1.0F : 1.0F + 7.0F * (x - 0.3F) / 0.7F);
    }
  }
  for (int i = 0; i < o.n_layers; ++i)
    w.layers.push_back(make_layer(random, o));
  return w;
}

void write_tiny_model(const TinyWeights& w, const std::string& path) {
  const TinyOptions& o = w.options;
  std::unique_ptr<gguf_context, void (*)(gguf_context*)> file(gguf_init_empty(), gguf_free);
  const size_t bytes = static_cast<size_t>(floats_in(w)) * sizeof(float) + (4U << 20);
  std::unique_ptr<ggml_context, void (*)(ggml_context*)> memory(
      ggml_init({.mem_size = bytes, .mem_buffer = nullptr, .no_alloc = false}), ggml_free);
  set_hyper(file.get(), o);
  set_vocabulary(file.get(), o.n_vocab);
  TensorWriter out(file.get(), memory.get(), o.weights);
  out.matrix("token_embd.weight", w.embed, o.n_embd);
  out.vector("output_norm.weight", w.output_norm);
  out.matrix("output.weight", w.output, o.n_embd);
  out.vector("rope_freqs.weight", w.rope_freqs);
  for (int i = 0; i < o.n_layers; ++i)
    add_layer(out, w.layers[static_cast<size_t>(i)], o, i);
  if (!gguf_write_to_file(file.get(), path.c_str(), false)) {
    std::fprintf(stderr, "cannot write %s\n", path.c_str());
    std::abort();
  }
}

std::vector<int32_t> random_tokens(int n, uint32_t seed) {
  Random random(seed);
  std::vector<int32_t> out;
  for (int i = 0; i < n; ++i)
    out.push_back(static_cast<int32_t>(random.uniform() * 256.0));
  return out;
}

}  // namespace kedge::test
