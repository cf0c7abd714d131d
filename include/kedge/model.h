// A loaded model: weights, tokenizer, and the threads it computes on. One per process is usual; sessions share it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kedge/error.h"

namespace kedge {

using Token = int32_t;

struct ModelOptions {
  std::string path;  // GGUF
  std::string gate;  // GGUF of a discard gate trained for this model (docs/gate.md); empty: none
  std::string lora;  // GGUF of a LoRA adapter of this model, in llama.cpp's format; empty: none
  float lora_scale = 1;
  int n_threads = 0;  // 0: one per CPU this process may use
  bool pin_threads = true;
  std::string prompt_weights = "auto";  // auto | native | f32 | bf16: how matrix products of a prompt read the weights
  std::string mmap = "auto";            // on: weights stay in the file's pages; off: copied into huge pages; auto
  std::string kernels = "auto";         // auto | ref | avx2 | avx512 | avx512vnni | avx512bf16
};

struct ModelInfo {
  std::string path;
  std::string name;
  std::string architecture;
  std::string weight_type;
  std::string adapter, gate;  // in use, by name; empty: none
  int n_layers = 0;
  int n_heads = 0, n_kv_heads = 0, head_dim = 0;
  int n_embd = 0, n_vocab = 0;
  int n_ctx_train = 0;
  int64_t n_params = 0;
  int64_t weight_bytes = 0;
  int64_t kv_bytes_per_token = 0;  // K and V rows of one token over all layers and kv heads, f16, without metadata
  std::string kernels;             // the attention kernels in use
  std::string prompt_weights;      // resolved
  std::string mmap;                // resolved: on | off
  int n_threads = 0;
};

struct ChatMessage {
  std::string role;  // system | user | assistant
  std::string content;
};

class Model {
 public:
  // Errors: model_unreadable (names the key or tensor), usage (unknown kernels, prompt_weights or mmap).
  static Result<std::unique_ptr<Model>> load(const ModelOptions& options);
  ~Model();

  const ModelInfo& info() const;
  // add_special: BOS where the model wants one. parse_special: control markers in the text become their tokens.
  std::vector<Token> tokenize(std::string_view text, bool add_special, bool parse_special) const;
  std::string piece(Token token) const;  // raw bytes, maybe part of a character; control tokens give ""
  std::string detokenize(std::span<const Token> tokens) const;
  bool is_end_of_generation(Token token) const;
  Token bos() const;  // -1: none
  // name: a built-in template of libllama, or empty for the model's own. Error usage.
  Result<std::string> apply_chat_template(std::span<const ChatMessage> messages, bool add_assistant,
                                          const std::string& name) const;

  struct Impl;
  Impl& impl() const { return *impl_; }

 private:
  Model();
  std::unique_ptr<Impl> impl_;
};

}  // namespace kedge
