#include "tensor/lora_file.h"

#include <cmath>
#include <map>

#include "tensor/gguf_writer.h"
#include "tensor/types.h"

namespace kedge::tensor {
namespace {

constexpr const char* kSuffixes[] = {".lora_a", ".lora_b"};
constexpr const char* kInvocation = "adapter.alora.invocation_tokens";

struct Refused {
  std::string what;  // "key 'adapter.type'"
  std::string found;
  std::string allowed;
};
Error error_of(const GgufFile& file, const Refused& it) {
  return {ErrorCode::model_unreadable,
          file.path() + ": " + it.what + ": found " + it.found + ", allowed " + it.allowed};
}

std::string tensor_named(const std::string& name) { return "tensor '" + name + "'"; }

Status must_be(const GgufFile& file, const std::string& key, const std::string& allowed) {
  const Result<std::string> found = file.get_string(key);
  if (!found)
    return found.error();
  if (*found != allowed)
    return error_of(file, {"key '" + key + "'", "'" + *found + "'", "'" + allowed + "'"});
  return {};
}

Status read_keys(const GgufFile& file, LoraInfo& info) {
  for (const auto& [key, value] : {std::pair{"general.type", "adapter"}, std::pair{"adapter.type", "lora"}}) {
    if (Status same = must_be(file, key, value); !same)
      return same;
  }
  if (file.has(kInvocation))
    return error_of(file, {std::string("key '") + kInvocation + "'", "an adapter of some tokens (aLoRA)",
                           "adapters of all tokens"});
  for (const auto& [key, to] :
       {std::pair{"general.name", &info.name}, std::pair{"general.description", &info.description}}) {
    Result<std::string> text = file.get_string_or(key, "");
    if (!text)
      return text.error();
    *to = *std::move(text);
  }
  Result<std::string> architecture = file.get_string("general.architecture");
  if (!architecture)
    return architecture.error();
  info.architecture = *std::move(architecture);
  const Result<float> alpha = file.get_f32("adapter.lora.alpha");
  if (!alpha)
    return alpha.error();
  info.alpha = *alpha;
  return {};
}

// A matrix that multiplies, of finite numbers.
Status check_tensor(const GgufFile& file, const TensorInfo& info) {
  if (info.n_dims > 2)  // of rank 1 there is one
    return error_of(file, {tensor_named(info.name), std::to_string(info.n_dims) + " dimensions", "2"});
  if (!can_multiply(info.type))
    return error_of(file, {tensor_named(info.name), "type " + type_name(info.type), "f32, f16 and quantised types"});
  std::vector<float> row(static_cast<size_t>(info.ne[0]));
  const std::byte* at = info.data;
  for (int64_t r = 0; r < info.ne[1]; ++r, at += row_bytes(info.type, info.ne[0])) {
    row_to_f32(info.type, at, row);
    for (const float value : row) {
      if (!std::isfinite(value))
        return error_of(file, {tensor_named(info.name), "a number that is not finite", "finite ones"});
    }
  }
  return {};
}

Status check_pair(const GgufFile& file, const LoraPair& pair) {
  for (const bool is_b : {false, true}) {
    if ((is_b ? pair.b : pair.a) == nullptr)
      return error_of(file, {tensor_named(pair.matrix + kSuffixes[is_b ? 1 : 0]), "none",
                             std::string("one beside its ") + kSuffixes[is_b ? 0 : 1]});
  }
  if (pair.a->ne[1] != pair.rank())
    return error_of(file, {tensor_named(pair.b->name), "rank " + std::to_string(pair.rank()),
                           std::to_string(pair.a->ne[1]) + ", that of its .lora_a"});
  return {};
}

}  // namespace

Result<LoraFile> read_lora(const GgufFile& file) {
  LoraFile out;
  if (Status keys = read_keys(file, out.info); !keys)
    return keys.error();
  std::map<std::string, LoraPair> pairs;
  for (const TensorInfo& info : file.tensors()) {
    const bool is_b = info.name.ends_with(kSuffixes[1]);
    if (!is_b && !info.name.ends_with(kSuffixes[0]))
      return error_of(file, {tensor_named(info.name), "it", "names that end in .lora_a and .lora_b"});
    if (Status fine = check_tensor(file, info); !fine)
      return fine.error();
    const std::string matrix = info.name.substr(0, info.name.size() - std::string_view(kSuffixes[0]).size());
    LoraPair& pair = pairs[matrix];
    pair.matrix = matrix;
    (is_b ? pair.b : pair.a) = &info;
  }
  for (const auto& [name, pair] : pairs) {
    if (Status whole = check_pair(file, pair); !whole)
      return whole.error();
    out.pairs.push_back(pair);
  }
  if (out.pairs.empty())
    return error_of(file, {"tensors", "none", "pairs of .lora_a and .lora_b"});
  return out;
}

std::vector<std::byte> lora_bytes(const LoraInfo& info, std::span<const LoraMatrices> matrices) {
  GgufWriter file;
  file.text("general.architecture", info.architecture);
  file.text("general.type", "adapter");
  file.text("general.name", info.name);
  file.text("general.description", info.description);
  file.text("adapter.type", "lora");
  file.real("adapter.lora.alpha", info.alpha);
  for (const LoraMatrices& one : matrices) {
    file.tensor(one.matrix + kSuffixes[0], one.a, one.rank, one.n_in);
    file.tensor(one.matrix + kSuffixes[1], one.b, one.n_out, one.rank);
  }
  return file.bytes();
}

}  // namespace kedge::tensor
