#include "llama_side.h"

#include <ggml-cpu.h>
#include <llama.h>
#include <sched.h>

#include <algorithm>
#include <vector>

#include "base/clock.h"

namespace kedge::bench {

namespace {

// Read before main(): a loaded Kedge model pins the calling thread, and its mask with it.
const cpu_set_t kProcessCpus = [] {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof(set), &set);
  return set;
}();

ggml_threadpool* pinned_threads(int n_threads) {
  ggml_threadpool_params params = ggml_threadpool_params_default(n_threads);
  int taken = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE && cpu < GGML_MAX_N_THREADS && taken < n_threads; ++cpu) {
    if (CPU_ISSET(cpu, &kProcessCpus))
      params.cpumask[cpu] = ++taken > 0;
  }
  params.strict_cpu = true;
  return ggml_threadpool_new(&params);
}

}  // namespace

LlamaSide::LlamaSide(const std::string& model_path, int n_threads, int n_ctx) {
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  model_ = llama_model_load_from_file(model_path.c_str(), llama_model_default_params());
  if (model_ == nullptr)
    return;
  llama_context_params params = llama_context_default_params();
  params.n_ctx = static_cast<uint32_t>(n_ctx);
  params.n_batch = 2048;
  params.n_ubatch = 512;
  params.n_threads = n_threads;
  params.n_threads_batch = n_threads;
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
  context_ = llama_init_from_model(model_, params);
  if (context_ == nullptr)
    return;
  threads_ = pinned_threads(n_threads);
  llama_attach_threadpool(context_, threads_, threads_);
}

LlamaSide::~LlamaSide() {
  if (context_ != nullptr)
    llama_free(context_);
  if (model_ != nullptr)
    llama_model_free(model_);
  if (threads_ != nullptr)
    ggml_threadpool_free(threads_);
}

void LlamaSide::clear() { llama_memory_clear(llama_get_memory(context_), true); }

double LlamaSide::append(std::span<const int32_t> tokens) {
  const Stopwatch watch;
  std::vector<llama_token> batch;
  for (size_t begin = 0; begin < tokens.size(); begin += 2048) {
    const size_t n = std::min<size_t>(2048, tokens.size() - begin);
    batch.assign(tokens.begin() + static_cast<std::ptrdiff_t>(begin),
                 tokens.begin() + static_cast<std::ptrdiff_t>(begin + n));
    if (llama_decode(context_, llama_batch_get_one(batch.data(), static_cast<int32_t>(n))) != 0)
      return -1;
  }
  llama_synchronize(context_);
  return watch.seconds();
}

}  // namespace kedge::bench
