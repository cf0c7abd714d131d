#include "kedge/model.h"

#include <array>

#include "api/model_impl.h"
#include "kernels/attention.h"
#include "session/model_identity.h"

namespace kedge {

namespace {

template <typename T>
struct Name {
  const char* name;
  T value;
};
constexpr std::array<Name<tensor::PromptWeights>, 4> kPromptWeights = {{
    {"auto", tensor::PromptWeights::automatic},
    {"native", tensor::PromptWeights::native},
    {"f32", tensor::PromptWeights::f32},
    {"bf16", tensor::PromptWeights::bf16},
}};
constexpr std::array<Name<tensor::WeightMemory>, 3> kWeightMemory = {{
    {"auto", tensor::WeightMemory::automatic},
    {"on", tensor::WeightMemory::mapped},
    {"off", tensor::WeightMemory::copied},
}};

template <typename T, size_t n>
Result<T> value_of(const std::array<Name<T>, n>& names, const std::string& name, const std::string& what) {
  std::string allowed;
  for (const Name<T>& known : names) {
    if (name == known.name)
      return known.value;
    allowed += (allowed.empty() ? "" : ", ") + std::string(known.name);
  }
  return Error{ErrorCode::usage, what + " '" + name + "' is not known; allowed: " + allowed};
}

template <typename T, size_t n>
const char* name_of(const std::array<Name<T>, n>& names, T value) {
  for (const Name<T>& known : names) {
    if (value == known.value)
      return known.name;
  }
  return names.front().name;
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

ModelInfo describe(const Model::Impl& impl) {
  const model::HyperParams& hyper = impl.net->hyper();
  return {.path = impl.net->file().path(),
          .name = hyper.name,
          .architecture = hyper.architecture,
          .weight_type = hyper.weight_type,
          .adapter = impl.net->lora() == nullptr ? "" : impl.net->lora()->words(),
          .gate = impl.gate == nullptr ? ""
                                       : impl.gate->info().name + " (sha256 " + impl.gate->sha256().substr(0, 16) + ")",
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
          .prompt_weights = name_of(kPromptWeights, impl.net->weights().prompt_weights()),
          .mmap = impl.net->weights().copied_bytes() > 0 ? "off" : "on",
          .n_threads = impl.compute->n_threads()};
}

}  // namespace

Model::Model() : impl_(std::make_unique<Impl>()) {}
Model::~Model() = default;

Result<std::unique_ptr<Model>> Model::load(const ModelOptions& options) {
  const Result<tensor::PromptWeights> prompt_weights =
      value_of(kPromptWeights, options.prompt_weights, "prompt weights");
  if (!prompt_weights)
    return prompt_weights.error();
  const Result<tensor::WeightMemory> memory = value_of(kWeightMemory, options.mmap, "mmap");
  if (!memory)
    return memory.error();
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
      model::load_model(*impl.compute, options.path, {.prompt_weights = *prompt_weights, .memory = *memory});
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
  if (!options.lora.empty()) {
    if (Status used = impl.net->use_lora(*impl.compute, {.path = options.lora, .scale = options.lora_scale}); !used)
      return used.error();
  }
  if (!options.gate.empty()) {
    Result<std::unique_ptr<gate::GateNet>> gate =
        gate::GateNet::load(*impl.compute, options.gate, session::gate_model(*impl.net));
    if (!gate)
      return gate.error();
    impl.gate = *std::move(gate);
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
