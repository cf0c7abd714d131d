#include "model/tokenizer.h"

#include <llama.h>

#include <algorithm>
#include <climits>
#include <exception>
#include <mutex>

#include "base/check.h"
#include "tensor/log.h"

namespace kedge::model {
namespace {

void llama_log(ggml_log_level level, const char* text, void* user) {
  tensor::keep_last_error(static_cast<int>(level), text, user);
}

void init_llama() {
  static std::once_flag once;
  std::call_once(once, [] { llama_backend_init(); });
  llama_log_set(llama_log, nullptr);  // each time: another user of libllama in this process may have set its own
}

struct ModelFree {
  void operator()(llama_model* model) const { llama_model_free(model); }
};

// libllama's C functions may throw on a vocabulary that contradicts itself (a byte without a token, say). `fallback`
// then.
template <typename T, typename Fn>
T guarded(T fallback, Fn fn) {
  try {
    return fn();
  } catch (const std::exception&) {
    return fallback;
  }
}

// What a vocabulary must have so that no later call can hit one of libllama's assertions. Empty when all is well.
std::string vocabulary_fault(const llama_vocab* vocab) {
  if (llama_vocab_type(vocab) == LLAMA_VOCAB_TYPE_NONE)
    return "key 'tokenizer.ggml.model': found no tokenizer, one is needed";
  const int n = llama_vocab_n_tokens(vocab);
  if (n <= 0)
    return "key 'tokenizer.ggml.tokens': found no tokens, at least one is needed";
  if (llama_vocab_get_add_bos(vocab) && llama_vocab_bos(vocab) < 0)
    return "key 'tokenizer.ggml.add_bos_token': found true without 'tokenizer.ggml.bos_token_id'";
  if (llama_vocab_get_add_eos(vocab) && llama_vocab_eos(vocab) < 0)
    return "key 'tokenizer.ggml.add_eos_token': found true without 'tokenizer.ggml.eos_token_id'";
  if (llama_vocab_bos(vocab) >= n)
    return "key 'tokenizer.ggml.bos_token_id': found " + std::to_string(llama_vocab_bos(vocab)) + ", allowed below " +
           std::to_string(n);
  if (llama_vocab_eos(vocab) >= n)
    return "key 'tokenizer.ggml.eos_token_id': found " + std::to_string(llama_vocab_eos(vocab)) + ", allowed below " +
           std::to_string(n);
  return {};
}

std::string first_line(std::string_view text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  return line.size() > 120 ? std::string(line.substr(0, 120)) + "..." : std::string(line);
}

}  // namespace

struct Tokenizer::Impl {
  std::unique_ptr<llama_model, ModelFree> model;
  const llama_vocab* vocab = nullptr;
  int n_vocab = 0;

  int32_t call_tokenize(std::string_view text, std::vector<Token>& out, bool add_special, bool parse_special) const {
    return llama_tokenize(vocab, text.data(), static_cast<int32_t>(text.size()), out.data(),
                          static_cast<int32_t>(out.size()), add_special, parse_special);
  }
};

Tokenizer::Tokenizer() : impl_(std::make_unique<Impl>()) {}
Tokenizer::~Tokenizer() = default;

Result<std::unique_ptr<Tokenizer>> Tokenizer::open(const std::string& path) {
  init_llama();
  (void)tensor::take_last_log_error();
  std::unique_ptr<Tokenizer> tokenizer(new Tokenizer());
  Impl& impl = *tokenizer->impl_;
  llama_model_params params = llama_model_default_params();
  params.vocab_only = true;
  params.use_extra_bufts = false;
  const auto bad = [&path](const std::string& what) { return Error{ErrorCode::model_unreadable, path + ": " + what}; };
  impl.model.reset(guarded<llama_model*>(nullptr, [&] { return llama_model_load_from_file(path.c_str(), params); }));
  if (impl.model == nullptr)
    return bad("tokenizer: refused by libllama: " + tensor::take_last_log_error());
  impl.vocab = llama_model_get_vocab(impl.model.get());
  const std::string fault = vocabulary_fault(impl.vocab);
  if (!fault.empty())
    return bad(fault);
  impl.n_vocab = llama_vocab_n_tokens(impl.vocab);
  // Every byte once: a vocabulary that cannot write one of them is refused here and not in the middle of a prompt.
  std::string bytes;
  for (int b = 1; b < 256; ++b)
    bytes += static_cast<char>(b);
  std::vector<Token> probe(8 * bytes.size() + 16);
  const bool sound = guarded<bool>(false, [&] { return impl.call_tokenize(bytes, probe, true, true) >= 0; });
  if (!sound)
    return bad("key 'tokenizer.ggml.tokens': found a vocabulary that cannot write every byte");
  return tokenizer;
}

int Tokenizer::n_vocab() const { return impl_->n_vocab; }
Token Tokenizer::bos() const { return llama_vocab_bos(impl_->vocab); }
Token Tokenizer::eos() const { return llama_vocab_eos(impl_->vocab); }
bool Tokenizer::adds_bos() const { return llama_vocab_get_add_bos(impl_->vocab); }

bool Tokenizer::is_end_of_generation(Token token) const {
  return token >= 0 && token < impl_->n_vocab && llama_vocab_is_eog(impl_->vocab, token);
}
std::vector<Token> Tokenizer::end_tokens() const {
  std::vector<Token> ends;
  for (Token token = 0; token < impl_->n_vocab; ++token) {
    if (is_end_of_generation(token))
      ends.push_back(token);
  }
  return ends;
}
bool Tokenizer::is_control(Token token) const {
  return token >= 0 && token < impl_->n_vocab && llama_vocab_is_control(impl_->vocab, token);
}
bool Tokenizer::is_marker(Token token) const {
  constexpr int kMarkers = LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_USER_DEFINED;
  return token >= 0 && token < impl_->n_vocab && (llama_vocab_get_attr(impl_->vocab, token) & kMarkers) != 0;
}

std::vector<Token> Tokenizer::tokenize(std::string_view text, bool add_special, bool parse_special) const {
  check(text.size() < INT32_MAX, "tokenize: more than 2 GiB of text");
  // Most texts have fewer tokens than bytes / 2; a second call with the right size serves the others.
  std::vector<Token> tokens(text.size() / 2 + 16);
  int32_t n =
      guarded<int32_t>(INT32_MIN, [&] { return impl_->call_tokenize(text, tokens, add_special, parse_special); });
  if (n < 0 && n != INT32_MIN) {
    tokens.resize(static_cast<size_t>(-n));
    n = guarded<int32_t>(INT32_MIN, [&] { return impl_->call_tokenize(text, tokens, add_special, parse_special); });
  }
  tokens.resize(n < 0 ? 0 : static_cast<size_t>(n));
  return tokens;
}

std::string Tokenizer::piece(Token token, bool render_special) const {
  if (token < 0 || token >= impl_->n_vocab)
    return {};
  std::string text(64, '\0');
  const auto call = [&] {
    return guarded<int32_t>(0, [&] {
      return llama_token_to_piece(impl_->vocab, token, text.data(), static_cast<int32_t>(text.size()), 0,
                                  render_special);
    });
  };
  int32_t n = call();
  if (n < 0) {
    text.resize(static_cast<size_t>(-n));
    n = call();
  }
  text.resize(n < 0 ? 0 : static_cast<size_t>(n));
  return text;
}

std::string Tokenizer::detokenize(std::span<const Token> tokens) const {
  std::string text;
  for (const Token token : tokens)
    text += piece(token);
  return text;
}

Result<std::string> Tokenizer::apply_chat_template(std::span<const Message> messages, bool add_assistant,
                                                   const std::string& name) const {
  const char* own = llama_model_chat_template(impl_->model.get(), nullptr);
  if (name.empty() && own == nullptr)
    return Error{ErrorCode::usage,
                 "chat template: the model has none; name one with --chat-template (chatml, llama3, ...)"};
  const char* source = name.empty() ? own : name.c_str();
  std::vector<llama_chat_message> chat;
  size_t n_bytes = 256;
  for (const Message& m : messages) {
    chat.push_back({.role = m.role.c_str(), .content = m.content.c_str()});
    n_bytes += 2 * (m.role.size() + m.content.size()) + 64;
  }
  std::string text(n_bytes, '\0');
  const auto call = [&] {
    return guarded<int32_t>(-1, [&] {
      return llama_chat_apply_template(source, chat.data(), chat.size(), add_assistant, text.data(),
                                       static_cast<int32_t>(text.size()));
    });
  };
  int32_t n = call();
  if (n > static_cast<int32_t>(text.size())) {
    text.resize(static_cast<size_t>(n));
    n = call();
  }
  if (n < 0)
    return Error{ErrorCode::usage,
                 "chat template: found '" + first_line(source) +
                     "', which libllama does not know; name a known one with --chat-template (chatml, llama3, ...)"};
  text.resize(static_cast<size_t>(n));
  return text;
}

}  // namespace kedge::model
