#include "kedge/model.h"

#include <array>

#include "api/model_impl.h"
#include "kernels/attention.h"

namespace kedge {

namespace {

struct PromptWeightsName {
  const char* name;
  tensor::PromptWeights value;
};
constexpr std::array<PromptWeightsName, 4> kPromptWeights = {{
    {"auto", tensor::PromptWeights::automatic},
    {"native", tensor::PromptWeights::native},
    {"f32", tensor::PromptWeights::f32},
    {"bf16", tensor::PromptWeights::bf16},
}};

Result<tensor::PromptWeights> parse_prompt_weights(const std::string& name) {
  for (const PromptWeightsName& known : kPromptWeights) {
    if (name == known.name)
      return known.value;
  }
  return Error{ErrorCode::usage, "prompt weights '" + name + "' are not known; allowed: auto, native, f32, bf16"};
}

Result<const AttentionKernels*> choose_kernels(const std::string& name) {
  if (name == "auto")
    return &best_attention_kernels();
  if (const AttentionKernels* kernels = attention_kernels(name.c_str()); kernels != nullptr)
    return kernels;
  return Error{ErrorCode::usage, "kernels '" + name +
                                     "' are not known or this CPU cannot run them; allowed: auto, ref, avx2, "
                                     "avx512, avx512vnni, avx512bf16 (this CPU's best: " +
                                     best_attention_kernels().name + ")"};
}

const char* name_of(tensor::PromptWeights value) {
  for (const PromptWeightsName& known : kPromptWeights) {
    if (value == known.value)
      return known.name;
  }
  return "auto";
}

ModelInfo describe(const Model::Impl& impl) {
  const model::HyperParams& hyper = impl.net->hyper();
  return {.path = impl.net->file().path(),
          .name = hyper.name,
          .architecture = hyper.architecture,
          .weight_type = hyper.weight_type,
          .n_layers = hyper.n_layers,
          .n_heads = hyper.n_heads,
          .n_kv_heads = hyper.n_kv_heads,
          .head_dim = hyper.head_dim,
          .n_embd = hyper.n_embd,
          .n_vocab = hyper.n_vocab,
          .n_ctx_train = hyper.n_ctx_train,
          .n_params = hyper.n_params,
          .weight_bytes = hyper.weight_bytes,
          .kv_bytes_per_token = int64_t{2} * hyper.n_layers * hyper.n_kv_heads * hyper.head_dim * kRowTypeBytes,
          .kernels = impl.kernels->name,
          .prompt_weights = name_of(impl.net->weights().prompt_weights()),
          .n_threads = impl.compute->n_threads()};
}

}  // namespace

Model::Model() : impl_(std::make_unique<Impl>()) {}
Model::~Model() = default;

Result<std::unique_ptr<Model>> Model::load(const ModelOptions& options) {
  const Result<tensor::PromptWeights> prompt_weights = parse_prompt_weights(options.prompt_weights);
  if (!prompt_weights)
    return prompt_weights.error();
  const Result<const AttentionKernels*> kernels = choose_kernels(options.kernels);
  if (!kernels)
    return kernels.error();
  std::unique_ptr<Model> model(new Model());
  Impl& impl = *model->impl_;
  impl.kernels = *kernels;
  Result<std::unique_ptr<tensor::Compute>> compute =
      tensor::Compute::create({.n_threads = options.n_threads, .pin = options.pin_threads});
  if (!compute)
    return compute.error();
  impl.compute = *std::move(compute);
  Result<std::unique_ptr<model::Model>> net =
      model::load_model(*impl.compute, options.path, {.prompt_weights = *prompt_weights});
  if (!net)
    return net.error();
  impl.net = *std::move(net);
  Result<std::unique_ptr<model::Tokenizer>> tokenizer = model::Tokenizer::open(options.path);
  if (!tokenizer)
    return tokenizer.error();
  impl.tokenizer = *std::move(tokenizer);
  if (impl.tokenizer->n_vocab() != impl.net->hyper().n_vocab) {
    return Error{ErrorCode::model_unreadable,
                 options.path + ": the tokenizer has " + std::to_string(impl.tokenizer->n_vocab()) +
                     " tokens and token_embd.weight has " + std::to_string(impl.net->hyper().n_vocab)};
  }
  impl.info = describe(impl);
  return model;
}

const ModelInfo& Model::info() const { return impl_->info; }

std::vector<Token> Model::tokenize(std::string_view text, bool add_special, bool parse_special) const {
  return impl_->tokenizer->tokenize(text, add_special, parse_special);
}

std::string Model::piece(Token token) const { return impl_->tokenizer->piece(token); }
std::string Model::detokenize(std::span<const Token> tokens) const { return impl_->tokenizer->detokenize(tokens); }
bool Model::is_end_of_generation(Token token) const { return impl_->tokenizer->is_end_of_generation(token); }
Token Model::bos() const { return impl_->tokenizer->bos(); }

Result<std::string> Model::apply_chat_template(std::span<const ChatMessage> messages, bool add_assistant,
                                               const std::string& name) const {
  std::vector<model::Tokenizer::Message> inner;
  inner.reserve(messages.size());
  for (const ChatMessage& message : messages)
    inner.push_back({message.role, message.content});
  return impl_->tokenizer->apply_chat_template(inner, add_assistant, name);
}

}  // namespace kedge
