// libFuzzer: any bytes either open as a GGUF file whose tensors lie inside them, or give an error of one line.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "tensor/gguf_file.h"

namespace {

// Keys the engine asks for; each typed read must answer whatever type the file gave them.
constexpr const char* kKeys[] = {"general.architecture", "general.name",         "general.alignment",
                                 "llama.block_count",    "llama.rope.freq_base", "tokenizer.ggml.tokens",
                                 "split.count"};

void require(bool condition) {
  if (!condition)
    std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes{reinterpret_cast<const std::byte*>(data), size};
  const auto file = kedge::tensor::GgufFile::open_bytes(bytes, "fuzz");
  if (!file.ok()) {
    const std::string& message = file.error().message;
    require(!message.empty() && message.find('\n') == std::string::npos);
    return 0;
  }
  for (const char* key : kKeys) {
    (void)(*file)->get_u32(key).ok();
    (void)(*file)->get_f32(key).ok();
    (void)(*file)->get_bool_or(key, false).ok();
    (void)(*file)->get_string(key).ok();
    (void)(*file)->array_length(key).ok();
  }
  unsigned sum = 0;
  for (const kedge::tensor::TensorInfo& tensor : (*file)->tensors()) {
    require(tensor.data >= bytes.data() && tensor.n_bytes > 0);
    require(static_cast<size_t>(tensor.data - bytes.data()) + static_cast<size_t>(tensor.n_bytes) <= size);
    sum += static_cast<unsigned>(tensor.data[0]) + static_cast<unsigned>(tensor.data[tensor.n_bytes - 1]);
  }
  return sum == 0xFFFFFFFF ? 1 : 0;
}
