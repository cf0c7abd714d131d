// llama.cpp's side of a comparison: the same weights, pinned threads, flash attention, f16 KV.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

struct llama_model;
struct llama_context;
struct ggml_threadpool;

namespace kedge::bench {

class LlamaSide {
 public:
  LlamaSide(const std::string& model_path, int n_threads, int n_ctx);
  ~LlamaSide();
  bool ok() const { return context_ != nullptr; }
  void clear();
  // Appends tokens (batches of 2048, micro-batches of 512) and leaves the last one's logits. Seconds taken, < 0 on
  // failure.
  double append(std::span<const int32_t> tokens);

 private:
  llama_model* model_ = nullptr;
  llama_context* context_ = nullptr;
  ggml_threadpool* threads_ = nullptr;
};

}  // namespace kedge::bench
