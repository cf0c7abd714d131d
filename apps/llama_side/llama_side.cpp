#include "llama_side/llama_side.h"

#include <ggml-cpu.h>
#include <llama.h>
#include <sched.h>

#include <algorithm>
#include <vector>

#include "base/clock.h"

namespace kedge::llama_side {
namespace {

// Narrows the calling thread to the CPU of the pool's thread 0 and gives it back what it had: ggml pins the thread that
// creates a pool, or that wakes a paused one, and leaves it so.
class PinScope {
 public:
  explicit PinScope(int cpu) : known_(sched_getaffinity(0, sizeof(before_), &before_) == 0) {
    if (!known_ || cpu < 0)
      return;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof(one), &one);  // a refusal costs speed, nothing else
  }
  ~PinScope() {
    if (known_)
      sched_setaffinity(0, sizeof(before_), &before_);
  }
  PinScope(const PinScope&) = delete;
  PinScope& operator=(const PinScope&) = delete;

 private:
  cpu_set_t before_{};
  bool known_;
};

std::vector<int> caller_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof(set), &set) != 0)
    return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE && cpu < GGML_MAX_N_THREADS; ++cpu) {
    if (CPU_ISSET(cpu, &set))
      cpus.push_back(cpu);
  }
  return cpus;
}

Error usage(std::string message) { return {.code = ErrorCode::usage, .message = std::move(message)}; }

Status check_options(const LlamaOptions& options) {
  if (options.kv_type != "f16" && options.kv_type != "f32")
    return usage("llama.cpp's KV type: found '" + options.kv_type + "', allowed f16 or f32");
  const auto bad = [](const char* what, int found, int least) {
    return usage(std::string("llama.cpp's ") + what + ": found " + std::to_string(found) + ", allowed " +
                 std::to_string(least) + " or more");
  };
  if (options.n_batch < 1)
    return bad("n_batch", options.n_batch, 1);
  if (options.n_ubatch < 1)
    return bad("n_ubatch", options.n_ubatch, 1);
  if (options.n_ctx < 0)
    return bad("n_ctx", options.n_ctx, 0);
  if (options.n_threads < 0 || options.n_threads > GGML_MAX_N_THREADS)
    return usage("llama.cpp's threads: found " + std::to_string(options.n_threads) + ", allowed 0.." +
                 std::to_string(GGML_MAX_N_THREADS));
  return {};
}

llama_context_params context_params(const LlamaOptions& options, int n_threads) {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = static_cast<uint32_t>(options.n_ctx);
  params.n_batch = static_cast<uint32_t>(options.n_batch);
  params.n_ubatch = static_cast<uint32_t>(std::min(options.n_ubatch, options.n_batch));
  params.n_threads = n_threads;
  params.n_threads_batch = n_threads;
  params.flash_attn_type = options.flash_attention ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
  params.type_k = options.kv_type == "f32" ? GGML_TYPE_F32 : GGML_TYPE_F16;
  params.type_v = params.type_k;
  params.no_perf = true;
  return params;
}

// llama_batch with its memory; all tokens belong to sequence 0.
class Batch {
 public:
  explicit Batch(int capacity) : batch_(llama_batch_init(capacity, 0, 1)) {}
  ~Batch() { llama_batch_free(batch_); }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  // Logits are computed for the tokens from `first_output` on.
  void fill(std::span<const int32_t> tokens, int64_t first_position, size_t first_output) {
    batch_.n_tokens = static_cast<int32_t>(tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i) {
      batch_.token[i] = tokens[i];
      batch_.pos[i] = static_cast<llama_pos>(first_position + static_cast<int64_t>(i));
      batch_.n_seq_id[i] = 1;
      batch_.seq_id[i][0] = 0;
      batch_.logits[i] = i >= first_output ? 1 : 0;
    }
  }
  const llama_batch& get() const { return batch_; }

 private:
  llama_batch batch_;
};

}  // namespace

struct LlamaSide::Impl {
  ~Impl() {
    if (context != nullptr)
      llama_free(context);
    if (model != nullptr)
      llama_model_free(model);
    if (threads != nullptr)
      ggml_threadpool_free(threads);
  }

  // A pinned pool like Kedge's own: worker i on the i-th CPU. More threads than CPUs are left to the system.
  bool start_threads(int n_threads, const std::vector<int>& cpus) {
    ggml_threadpool_params params = ggml_threadpool_params_default(n_threads);
    const bool pin = n_threads <= static_cast<int>(cpus.size());
    if (pin) {
      for (int i = 0; i < n_threads; ++i)
        params.cpumask[cpus[static_cast<size_t>(i)]] = true;
      // ggml gives CPUs in mask order to its workers 1, 2, ... and the last to worker 0, the caller.
      caller_cpu = cpus[static_cast<size_t>(n_threads - 1)];
    }
    params.strict_cpu = pin;
    params.poll = pin ? 50 : 0;
    threads = ggml_threadpool_new(&params);
    return threads != nullptr;
  }

  // The adapter goes with the model.
  bool use_lora() {
    llama_adapter_lora* adapter = llama_adapter_lora_init(model, options.lora.c_str());
    return adapter != nullptr && llama_set_adapters_lora(context, &adapter, 1, &options.lora_scale) == 0;
  }

  Status fits(size_t n) const {
    const auto limit = static_cast<int64_t>(llama_n_ctx(context));
    if (n_tokens + static_cast<int64_t>(n) <= limit)
      return {};
    return Error{.code = ErrorCode::context_too_long,
                 .message = "llama.cpp: " + std::to_string(n_tokens) + " + " + std::to_string(n) +
                            " tokens, its context holds " + std::to_string(limit)};
  }

  Status decode(std::span<const int32_t> tokens, size_t first_output) {
    batch->fill(tokens, n_tokens, first_output);
    const int32_t rc = llama_decode(context, batch->get());
    if (rc == 2)
      return Error{.code = ErrorCode::cancelled, .message = "interrupted"};
    if (rc != 0) {
      return Error{.code = ErrorCode::failed,
                   .message = "llama_decode: status " + std::to_string(rc) + " for " + std::to_string(tokens.size()) +
                              " tokens at position " + std::to_string(n_tokens)};
    }
    n_tokens += static_cast<int64_t>(tokens.size());
    return {};
  }

  LlamaOptions options;
  llama_model* model = nullptr;
  llama_context* context = nullptr;
  ggml_threadpool* threads = nullptr;
  std::unique_ptr<Batch> batch;
  int caller_cpu = -1;
  int n_vocab = 0;
  int64_t n_tokens = 0;
};

LlamaSide::LlamaSide(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LlamaSide::~LlamaSide() = default;

Result<std::unique_ptr<LlamaSide>> LlamaSide::open(const LlamaOptions& options) {
  if (Status status = check_options(options); !status)
    return status.error();
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  const PinScope keep(-1);
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  llama_model_params params = llama_model_default_params();
  params.n_gpu_layers = 0;
  params.use_extra_bufts = options.repack_weights;
  impl->model = llama_model_load_from_file(options.path.c_str(), params);
  if (impl->model == nullptr)
    return Error{.code = ErrorCode::model_unreadable, .message = options.path + ": libllama cannot open it"};
  impl->n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(impl->model));
  const std::vector<int> cpus = caller_cpus();
  const int n_threads = options.n_threads > 0 ? options.n_threads : std::max(1, static_cast<int>(cpus.size()));
  impl->context = llama_init_from_model(impl->model, context_params(options, n_threads));
  if (impl->context == nullptr || !impl->start_threads(n_threads, cpus)) {
    return Error{.code = ErrorCode::failed,
                 .message = "llama.cpp: no context of " + std::to_string(options.n_ctx) + " tokens and " +
                            std::to_string(n_threads) + " threads"};
  }
  if (!options.lora.empty() && !impl->use_lora())
    return Error{.code = ErrorCode::model_unreadable,
                 .message = options.lora + ": libllama cannot use it as an adapter"};
  if (options.stop) {
    const auto ask = [](void* user) { return static_cast<Impl*>(user)->options.stop(); };
    llama_set_abort_callback(impl->context, ask, impl.get());
  }
  llama_attach_threadpool(impl->context, impl->threads, impl->threads);
  impl->batch = std::make_unique<Batch>(options.n_batch);
  return std::unique_ptr<LlamaSide>(new LlamaSide(std::move(impl)));
}

int LlamaSide::n_vocab() const { return impl_->n_vocab; }
int LlamaSide::n_ctx() const { return static_cast<int>(llama_n_ctx(impl_->context)); }
int64_t LlamaSide::n_tokens() const { return impl_->n_tokens; }

void LlamaSide::clear() {
  llama_memory_clear(llama_get_memory(impl_->context), true);
  impl_->n_tokens = 0;
}

void LlamaSide::truncate(int64_t n_tokens) {
  if (n_tokens <= 0) {
    clear();
  } else if (n_tokens < impl_->n_tokens) {
    llama_memory_seq_rm(llama_get_memory(impl_->context), 0, static_cast<llama_pos>(n_tokens), -1);
    impl_->n_tokens = n_tokens;
  }
}

Result<double> LlamaSide::append(std::span<const int32_t> tokens) {
  if (Status status = impl_->fits(tokens.size()); !status)
    return status.error();
  const PinScope pin(impl_->caller_cpu);
  const Stopwatch watch;
  while (!tokens.empty()) {
    const std::span<const int32_t> part = tokens.first(std::min<size_t>(tokens.size(), impl_->options.n_batch));
    tokens = tokens.subspan(part.size());
    if (Status status = impl_->decode(part, tokens.empty() ? part.size() - 1 : part.size()); !status)
      return status.error();
  }
  llama_synchronize(impl_->context);
  return watch.seconds();
}

std::span<const float> LlamaSide::logits() const {
  const float* row = impl_->n_tokens > 0 ? llama_get_logits_ith(impl_->context, -1) : nullptr;
  return row == nullptr ? std::span<const float>() : std::span(row, static_cast<size_t>(impl_->n_vocab));
}

Status LlamaSide::score(std::span<const int32_t> tokens, const EachLogits& each) {
  if (Status status = impl_->fits(tokens.size()); !status)
    return status;
  const PinScope pin(impl_->caller_cpu);
  const auto width = static_cast<size_t>(std::min(impl_->options.n_ubatch, impl_->options.n_batch));
  for (size_t begin = 0; begin < tokens.size(); begin += width) {
    const size_t n = std::min(width, tokens.size() - begin);
    if (Status status = impl_->decode(tokens.subspan(begin, n), 0); !status)
      return status;
    for (size_t i = 0; i < n; ++i) {
      const float* row = llama_get_logits_ith(impl_->context, static_cast<int32_t>(i));
      if (row == nullptr)
        return Error{.code = ErrorCode::failed,
                     .message = "llama.cpp: no logits of token " + std::to_string(begin + i)};
      each(static_cast<int64_t>(begin + i), {row, static_cast<size_t>(impl_->n_vocab)});
    }
  }
  return {};
}

void LlamaSide::rest() { ggml_threadpool_pause(impl_->threads); }

}  // namespace kedge::llama_side
