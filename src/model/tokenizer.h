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
  std::vector<Token> end_tokens() const;  // all that end a generation
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
  float length_penalty = 1.0F;         // the odds of an end token against all others are divided by it
  uint32_t seed = 0xFFFFFFFF;          // that value: random
  std::vector<Token> end_tokens = {};  // those that end an answer; only read with a length penalty
};

// What a sampler is at one moment: the same state draws the same tokens.
struct SamplerState {
  SamplerOptions options;     // the seed is the one in use
  uint64_t n_draws = 0;       // random numbers taken so far
  std::vector<Token> recent;  // what the repeat penalty looks back on, oldest first; empty where it is off
};

// A sampler chain of libllama fed by our own top-k. Greedy does not touch the chain. The length penalty X comes before
// everything else: logit[e] -= ln X for each end token e, so that e^logit[e], and with it the odds of ending at this
// token, are divided by X. Ours: the length penalty of beam search compares whole answers, which a sampler never has.
// Unlike a factor on the logit it does not depend on what a softmax ignores, the common offset of all logits.
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
