// llama.cpp's side of a comparison: libllama in this process over the same GGUF file, on pinned threads of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "kedge/error.h"

namespace kedge::llama_side {

struct LlamaOptions {
  std::string path;  // GGUF
  std::string lora;  // GGUF of an adapter; empty: none
  float lora_scale = 1;
  int n_threads = 0;  // 0: one per CPU this process may use
  int n_ctx = 0;      // tokens at most; 0: what the model was trained to
  int n_batch = 2048;
  int n_ubatch = 512;
  bool flash_attention = true;
  std::string kv_type = "f16";  // f16 | f32
  // The CPU's own layouts of the weights: what llama.cpp's programs use, and fastest. Without them products are those
  // of the weights as stored.
  bool repack_weights = true;
  std::function<bool()> stop;  // asked between graph nodes; true ends the call with error cancelled
};

// One sequence over libllama. The thread pool is created once, each of its threads on one CPU of the caller's affinity
// mask; the caller is thread 0 and is pinned only inside a call. Not for two threads at once.
class LlamaSide {
 public:
  // Errors: usage (kv_type, numbers), model_unreadable (the adapter too), failed (no memory for the context).
  static Result<std::unique_ptr<LlamaSide>> open(const LlamaOptions& options);
  ~LlamaSide();
  LlamaSide(const LlamaSide&) = delete;
  LlamaSide& operator=(const LlamaSide&) = delete;

  int n_vocab() const;
  int n_ctx() const;
  int64_t n_tokens() const;  // appended since the last clear()

  // Forgets all tokens, or all but the first n.
  void clear();
  void truncate(int64_t n_tokens);

  // Appends tokens in batches of n_batch; logits of the last one are then in logits(). Seconds taken.
  // Errors: context_too_long (nothing appended), cancelled (then clear() or truncate()), failed.
  Result<double> append(std::span<const int32_t> tokens);
  std::span<const float> logits() const;  // f32 [n_vocab]; empty before the first token

  // Teacher forcing: appends tokens in batches of n_ubatch; the logits that follow token `index` go to `each`, f32
  // [n_vocab], in order. Holds n_ubatch * n_vocab f32. Errors as append().
  using EachLogits = std::function<void(int64_t index, std::span<const float> logits)>;
  Status score(std::span<const int32_t> tokens, const EachLogits& each);

  // Sends the pool's threads to sleep at once. Without it they spin for up to a second after the last graph, in the way
  // of whoever is measured next. The next call wakes them.
  void rest();

 private:
  struct Impl;
  explicit LlamaSide(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kedge::llama_side
