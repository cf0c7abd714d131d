#include "session/model_identity.h"

#include <algorithm>
#include <cstdio>

#include "base/sha256.h"

namespace kedge::session {
namespace {

constexpr size_t kSamples = 64;
constexpr size_t kSampleBytes = size_t{64} << 10;

// The file up to its first tensor's data, its size, and evenly spread samples of what follows (all of a small file).
std::string hash_of(const tensor::GgufFile& file) {
  const std::span<const std::byte> bytes = file.bytes();
  size_t data = bytes.size();
  for (const tensor::TensorInfo& tensor : file.tensors())
    data = std::min(data, static_cast<size_t>(tensor.data - bytes.data()));
  Sha256 digest;
  const uint64_t size = bytes.size();
  digest.add(&size, sizeof size);
  digest.add(bytes.data(), data);
  const size_t left = bytes.size() - data;
  if (left <= kSamples * kSampleBytes) {
    digest.add(bytes.data() + data, left);
  } else {
    for (size_t i = 0; i < kSamples; ++i)
      digest.add(bytes.data() + data + (left - kSampleBytes) / (kSamples - 1) * i, kSampleBytes);
  }
  return Sha256::hex(digest.end());
}

std::string words(const ModelIdentity& m) {
  return "'" + m.name + "' (" + m.architecture + ", " + std::to_string(m.n_layers) + " layers, " +
         std::to_string(m.n_heads) + "/" + std::to_string(m.n_kv_heads) + " heads of " + std::to_string(m.head_dim) +
         ", " + std::to_string(m.n_vocab) + " tokens, sha256 " + m.sha256.substr(0, 16) + ")";
}

std::string adapter_words(const ModelIdentity& m) {
  if (m.lora_sha256.empty())
    return "no adapter";
  char scale[32];
  std::snprintf(scale, sizeof scale, "%.9g", static_cast<double>(m.lora_scale));
  return "the adapter of sha256 " + m.lora_sha256.substr(0, 16) + " at the scale " + scale;
}

}  // namespace

ModelIdentity identify(const model::Model& model) {
  const model::HyperParams& hyper = model.hyper();
  const model::Lora* lora = model.lora();
  return {.name = hyper.name,
          .architecture = hyper.architecture,
          .n_layers = hyper.n_layers,
          .n_heads = hyper.n_heads,
          .n_kv_heads = hyper.n_kv_heads,
          .head_dim = hyper.head_dim,
          .n_vocab = hyper.n_vocab,
          .sha256 = hash_of(model.file()),
          .lora_sha256 = lora == nullptr ? "" : lora->sha256(),
          .lora_scale = lora == nullptr ? 0 : lora->scale()};
}

gate::GateModel gate_model(const model::Model& model) {
  const model::HyperParams& hyper = model.hyper();
  return {.architecture = hyper.architecture,
          .sha256 = hash_of(model.file()),
          .n_layers = hyper.n_layers,
          .n_embd = hyper.n_embd,
          .n_kv_heads = hyper.n_kv_heads,
          .head_dim = hyper.head_dim};
}

Status same_model(const ModelIdentity& saved, const ModelIdentity& here) {
  if (saved.sha256 != here.sha256 || saved.n_layers != here.n_layers || saved.n_heads != here.n_heads ||
      saved.n_kv_heads != here.n_kv_heads || saved.head_dim != here.head_dim || saved.n_vocab != here.n_vocab)
    return Error{ErrorCode::usage, "saved with the model " + words(saved) + ", and this is " + words(here)};
  if (saved.lora_sha256 != here.lora_sha256 || saved.lora_scale != here.lora_scale)
    return Error{ErrorCode::usage, "saved with " + adapter_words(saved) + ", and here is " + adapter_words(here) +
                                       ": --lora FILE, --lora-scale S"};
  return {};
}

}  // namespace kedge::session
