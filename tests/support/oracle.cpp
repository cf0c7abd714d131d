#include "support/oracle.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "llama.h"
#include "support/kl.h"

namespace kedge::test {
namespace {

constexpr int kBatchTokens = 512;

void quiet(ggml_log_level level, const char* text, void*) {
  if (level == GGML_LOG_LEVEL_ERROR)
    std::fputs(text, stderr);
}

[[noreturn]] void die(const char* what, const std::string& detail) {
  std::fprintf(stderr, "oracle: %s: %s\n", what, detail.c_str());
  std::abort();
}

using Context = std::unique_ptr<llama_context, void (*)(llama_context*)>;

Context open_context(llama_model* model, const OracleConfig& config, int64_t n_tokens) {
  llama_context_params p = llama_context_default_params();
  p.n_ctx = static_cast<uint32_t>(n_tokens);
  p.n_batch = kBatchTokens;
  p.n_ubatch = kBatchTokens;
  p.n_threads = config.n_threads;
  p.n_threads_batch = config.n_threads;
  p.flash_attn_type = config.flash_attention ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
  p.type_k = config.kv_f16 ? GGML_TYPE_F16 : GGML_TYPE_F32;
  p.type_v = p.type_k;
  p.no_perf = true;
  Context context(llama_init_from_model(model, p), llama_free);
  if (!context)
    die("no context", std::to_string(n_tokens) + " tokens");
  return context;
}

// Runs tokens[begin, end) as one batch; logits are kept for the positions from `first` on.
void run_batch(llama_context* context, std::span<const int32_t> tokens, int64_t begin, int64_t end, int64_t first) {
  const auto n = static_cast<int32_t>(end - begin);
  llama_batch batch = llama_batch_init(n, 0, 1);
  batch.n_tokens = n;
  for (int32_t i = 0; i < n; ++i) {
    batch.token[i] = tokens[static_cast<size_t>(begin + i)];
    batch.pos[i] = static_cast<llama_pos>(begin + i);
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = 0;
    batch.logits[i] = begin + i >= first ? 1 : 0;
  }
  const int32_t rc = llama_decode(context, batch);
  llama_batch_free(batch);
  if (rc != 0)
    die("llama_decode failed", std::to_string(rc));
}

}  // namespace

struct Oracle::Impl {
  llama_model* model = nullptr;
  const llama_vocab* vocab = nullptr;
};

Oracle::Oracle(const std::string& path) : impl_(std::make_unique<Impl>()) {
  llama_log_set(quiet, nullptr);
  llama_backend_init();
  llama_model_params p = llama_model_default_params();
  p.n_gpu_layers = 0;
  // Repacked weights go through kernels of their own; GCC 12 miscompiles the tile set-up of the AMX ones (llama.cpp
  // 26954).
  p.use_extra_bufts = false;
  impl_->model = llama_model_load_from_file(path.c_str(), p);
  if (impl_->model == nullptr)
    die("cannot load", path);
  impl_->vocab = llama_model_get_vocab(impl_->model);
}

Oracle::~Oracle() { llama_model_free(impl_->model); }

int Oracle::n_vocab() const { return llama_vocab_n_tokens(impl_->vocab); }

std::vector<int32_t> Oracle::tokenize(std::string_view text) const {
  std::vector<int32_t> out(text.size() + 8);
  const int32_t n = llama_tokenize(impl_->vocab, text.data(), static_cast<int32_t>(text.size()), out.data(),
                                   static_cast<int32_t>(out.size()), false, false);
  if (n < 0)
    die("cannot tokenize", std::string(text.substr(0, 40)));
  out.resize(static_cast<size_t>(n));
  return out;
}

void Oracle::logits(std::span<const int32_t> tokens, int64_t first, const OracleConfig& config,
                    const EachLogits& each) const {
  const auto total = static_cast<int64_t>(tokens.size());
  const Context context = open_context(impl_->model, config, total);
  for (int64_t begin = 0; begin < total; begin += kBatchTokens) {
    const int64_t end = std::min(begin + kBatchTokens, total);
    run_batch(context.get(), tokens, begin, end, first);
    for (int64_t i = std::max(begin, first); i < end; ++i) {
      const float* row = llama_get_logits_ith(context.get(), static_cast<int32_t>(i - begin));
      if (row == nullptr)
        die("no logits", std::to_string(i));
      each(i, {row, static_cast<size_t>(n_vocab())});
    }
  }
}

std::vector<std::vector<float>> Oracle::logits(std::span<const int32_t> tokens, int64_t first,
                                               const OracleConfig& config) const {
  std::vector<std::vector<float>> out;
  logits(tokens, first, config, [&](int64_t, std::span<const float> row) { out.emplace_back(row.begin(), row.end()); });
  return out;
}

std::vector<int32_t> Oracle::greedy(std::span<const int32_t> prompt, int n, const OracleConfig& config) const {
  std::vector<int32_t> tokens(prompt.begin(), prompt.end());
  const Context context = open_context(impl_->model, config, static_cast<int64_t>(prompt.size()) + n);
  int64_t done = 0;
  for (int i = 0; i < n; ++i) {
    const auto total = static_cast<int64_t>(tokens.size());
    for (; done < total; done = std::min(done + kBatchTokens, total)) {
      run_batch(context.get(), tokens, done, std::min(done + kBatchTokens, total), total - 1);
    }
    tokens.push_back(argmax({llama_get_logits_ith(context.get(), -1), static_cast<size_t>(n_vocab())}));
  }
  return {tokens.begin() + static_cast<std::ptrdiff_t>(prompt.size()), tokens.end()};
}

}  // namespace kedge::test
