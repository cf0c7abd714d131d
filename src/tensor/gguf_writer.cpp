#include "tensor/gguf_writer.h"

#include <ggml.h>
#include <gguf.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "base/check.h"

namespace kedge::tensor {

struct GgufWriter::Impl {
  struct Free {
    void operator()(gguf_context* c) const { gguf_free(c); }
    void operator()(ggml_context* c) const { ggml_free(c); }
  };
  std::unique_ptr<gguf_context, Free> gguf{gguf_init_empty()};
  std::vector<std::unique_ptr<ggml_context, Free>> contexts;  // one a tensor
  std::vector<const ggml_tensor*> tensors;
};

GgufWriter::GgufWriter() : impl_(std::make_unique<Impl>()) {}
GgufWriter::~GgufWriter() = default;

void GgufWriter::text(const std::string& key, const std::string& value) {
  gguf_set_val_str(impl_->gguf.get(), key.c_str(), value.c_str());
}
void GgufWriter::number(const std::string& key, uint32_t value) {
  gguf_set_val_u32(impl_->gguf.get(), key.c_str(), value);
}
void GgufWriter::real(const std::string& key, float value) { gguf_set_val_f32(impl_->gguf.get(), key.c_str(), value); }

void GgufWriter::tensor(const std::string& name, std::span<const float> values, int64_t rows, int64_t cols,
                        StoredAs type) {
  const int64_t n_rows = rows > 0 ? rows : 1;
  check(static_cast<int64_t>(values.size()) == n_rows * cols, "a tensor has as many values as its shape says");
  const bool whole_blocks = cols % ggml_blck_size(GGML_TYPE_Q8_0) == 0;
  const ggml_type stored = type == StoredAs::q8_0 && whole_blocks ? GGML_TYPE_Q8_0 : GGML_TYPE_F32;
  const int64_t ne[] = {cols, n_rows};
  const size_t bytes = ggml_row_size(stored, cols) * static_cast<size_t>(n_rows);
  impl_->contexts.emplace_back(
      ggml_init({.mem_size = bytes + 2 * ggml_tensor_overhead() + 256, .mem_buffer = nullptr, .no_alloc = false}));
  ggml_tensor* t = ggml_new_tensor(impl_->contexts.back().get(), stored, rows > 0 ? 2 : 1, ne);
  ggml_set_name(t, name.c_str());
  if (stored == GGML_TYPE_F32)
    std::memcpy(t->data, values.data(), bytes);
  else
    ggml_quantize_chunk(stored, values.data(), t->data, 0, n_rows, cols, nullptr);
  gguf_add_tensor(impl_->gguf.get(), t);
  impl_->tensors.push_back(t);
}

std::vector<std::byte> GgufWriter::bytes() const {
  const gguf_context* gguf = impl_->gguf.get();
  std::vector<std::byte> out(gguf_get_meta_size(gguf));
  gguf_get_meta_data(gguf, out.data());
  for (const ggml_tensor* t : impl_->tensors) {
    const size_t at = out.size();
    out.resize(at + GGML_PAD(ggml_nbytes(t), gguf_get_alignment(gguf)));
    std::memcpy(out.data() + at, t->data, ggml_nbytes(t));
  }
  return out;
}

}  // namespace kedge::tensor
