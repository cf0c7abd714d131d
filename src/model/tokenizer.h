// Tokenizer, chat templates and samplers of libllama, opened with vocab_only. The only user of llama.h in the engine.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kedge/error.h"

namespace kedge::model {

using Token = int32_t;

class Tokenizer {
 public:
  // The file must have been opened by GgufFile first (that is what makes arbitrary bytes safe).
  static Result<std::unique_ptr<Tokenizer>> open(const std::string& path);
  ~Tokenizer();

  int n_vocab() const;
  Token bos() const;  // -1 when the model has none
  Token eos() const;
  bool adds_bos() const;
  bool is_end_of_generation(Token token) const;
  bool is_control(Token token) const;
  bool is_marker(Token token) const;  // control, or defined by the model's users, such as chat markers
  // parse_special: markers such as <|im_start|> become their tokens. add_special: BOS/EOS as the model wants them.
  std::vector<Token> tokenize(std::string_view text, bool add_special, bool parse_special) const;
  std::string piece(Token token, bool render_special = false) const;  // bytes; may be part of a UTF-8 character
  std::string detokenize(std::span<const Token> tokens) const;

  struct Message {
    std::string role;
    std::string content;
  };
  // `name`: a template libllama knows, or empty for the model's own. Error usage: names the template's first line.
  Result<std::string> apply_chat_template(std::span<const Message> messages, bool add_assistant,
                                          const std::string& name) const;

 private:
  Tokenizer();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct SamplerOptions {
  float temperature = 0.8F;  // <= 0: greedy
  int top_k = 40;            // <= 0: all
  float top_p = 0.95F;
  float min_p = 0.05F;
  float repeat_penalty = 1.0F;
  int repeat_last_n = 64;
  uint32_t seed = 0xFFFFFFFF;  // that value: random
};

// What a sampler is at one moment: the same state draws the same tokens.
struct SamplerState {
  SamplerOptions options;     // the seed is the one in use
  uint64_t n_draws = 0;       // random numbers taken so far
  std::vector<Token> recent;  // what the repeat penalty looks back on, oldest first; empty where it is off
};

// A sampler chain of libllama fed by our own top-k. Greedy does not touch the chain.
class Sampler {
 public:
  explicit Sampler(const SamplerOptions& options);
  static Sampler resume(const SamplerState& state);
  ~Sampler();
  Sampler(Sampler&&) noexcept;
  Token sample(std::span<const float> logits);  // f32 [n_vocab]; ties of the greedy choice go to the lower id
  void accept(Token token);
  void reset();
  uint32_t seed() const;  // the one in use
  SamplerState state() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kedge::model
