// Small GGUF files for tests, written by ggml's own writer.
#pragma once

#include <ggml.h>
#include <gguf.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

namespace kedge::tensor {

class TestGguf {
 public:
  TestGguf() : gguf_(gguf_init_empty()) {
    context_ = ggml_init({.mem_size = size_t{64} << 20, .mem_buffer = nullptr, .no_alloc = false});
  }
  ~TestGguf() {
    gguf_free(gguf_);
    ggml_free(context_);
  }
  TestGguf(const TestGguf&) = delete;
  TestGguf& operator=(const TestGguf&) = delete;

  gguf_context* keys() { return gguf_; }
  void u32(const std::string& key, uint32_t value) { gguf_set_val_u32(gguf_, key.c_str(), value); }
  void f32(const std::string& key, float value) { gguf_set_val_f32(gguf_, key.c_str(), value); }
  void text(const std::string& key, const std::string& value) { gguf_set_val_str(gguf_, key.c_str(), value.c_str()); }

  // ne fastest first, as ggml has it; `values` are converted to `type` (quantised when it is a quantised type).
  void tensor(const std::string& name, ggml_type type, std::vector<int64_t> ne, const std::vector<float>& values) {
    ggml_tensor* t = ggml_new_tensor(context_, type, static_cast<int>(ne.size()), ne.data());
    ggml_set_name(t, name.c_str());
    if (type == GGML_TYPE_F32) {
      std::memcpy(t->data, values.data(), ggml_nbytes(t));
    } else {
      ggml_quantize_chunk(type, values.data(), t->data, 0, ggml_nrows(t), ne[0], nullptr);
    }
    gguf_add_tensor(gguf_, t);
    tensors_.push_back(t);
  }

  std::vector<std::byte> bytes() const {
    std::vector<std::byte> out(gguf_get_meta_size(gguf_));
    gguf_get_meta_data(gguf_, out.data());
    for (const ggml_tensor* t : tensors_) {
      const size_t at = out.size();
      out.resize(at + GGML_PAD(ggml_nbytes(t), gguf_get_alignment(gguf_)));
      std::memcpy(out.data() + at, t->data, ggml_nbytes(t));
    }
    return out;
  }

 private:
  gguf_context* gguf_;
  ggml_context* context_;
  std::vector<const ggml_tensor*> tensors_;
};

// A file that is gone with the object.
class TempFile {
 public:
  explicit TempFile(const std::vector<std::byte>& bytes) {
    const char* dir = std::getenv("TMPDIR");
    path_ = std::string(dir != nullptr ? dir : "/tmp") + "/kedge-test-XXXXXX";
    const int fd = mkstemp(path_.data());
    if (fd >= 0)
      ::close(fd);
    std::ofstream(path_, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
  ~TempFile() { std::remove(path_.c_str()); }
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace kedge::tensor
