// The CPU backend with ONE persistent pinned thread pool, and a graph builder whose vocabulary is what language models
// need. Thin over ggml: a Tensor is a ggml_tensor*, ownership is the Graph's. Outside tensor/ and attention/ nobody
// includes ggml headers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/executor.h"
#include "kedge/error.h"
#include "tensor/gguf_file.h"

struct ggml_tensor;
struct ggml_context;

namespace kedge::tensor {

using Tensor = ggml_tensor*;

int64_t n_rows(Tensor t);  // of a tensor [n_rows, n_cols]
int64_t n_cols(Tensor t);

struct ComputeOptions {
  int n_threads = 0;  // 0: all CPUs this process may run on
  bool pin = true;    // thread i on the i-th CPU of the process's affinity mask, strictly
};

// Owns the ggml CPU backend and its thread pool. The calling thread is thread 0 of every run and is pinned while it
// runs. One run at a time: not for two threads at once. Must outlive its Weights and Graphs. Also the Executor of
// everything else (one-node graphs).
class Compute final : public Executor {
 public:
  static Result<std::unique_ptr<Compute>> create(const ComputeOptions& options);
  ~Compute() override;
  int n_threads() const override;
  void run(const std::function<void(int ith, int nth)>& fn) override;
  // Gives the scratch of destroyed graphs back to the system (it is kept for the next graph otherwise).
  void release_scratch();

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  Compute();
  std::unique_ptr<Impl> impl_;
};

// How matrix products of a prompt (more than kMinPromptRows rows) read their weights.
//   native: as stored (or as repacked at load by an extra buffer type of this CPU, e.g. 8x8 blocks; never AMX, see
//   weights.cpp) f32, bf16: dequantised inside the graph, one layer at a time, into scratch
enum class PromptWeights { automatic, native, f32, bf16 };
inline constexpr int kMinPromptRows = 32;

// Where the tensors that every token reads as they are stored lie.
//   mapped: in the file's pages, which other processes share and the system can drop
//   copied: in memory of this process, in huge pages where the system grants them: every token reads all of them, and
//   through 4 KiB pages that costs up to three times as much
//   automatic: copied where huge pages are granted and the matrices need at most half of the available memory
enum class WeightMemory { automatic, mapped, copied };

struct WeightOptions {
  PromptWeights prompt_weights = PromptWeights::automatic;
  WeightMemory memory = WeightMemory::automatic;
  bool repack = true;  // also make the CPU's own layout of 2-D matmul weights
};

// Weights of one model: mapped or copied tensors, and repacked ones where the CPU backend has a faster form of them.
class Weights {
 public:
  // Creates a Tensor for every tensor of the file, which must outlive it. Error failed: no memory for a copy.
  static Result<std::unique_ptr<Weights>> create(Compute& compute, const GgufFile& file, const WeightOptions& options);
  ~Weights();
  Tensor find(std::string_view name) const;  // as stored; nullptr when absent
  Tensor repacked(Tensor stored) const;      // the repacked form, or `stored` itself
  PromptWeights prompt_weights() const;      // automatic resolved: f32
  int64_t repacked_bytes() const;
  int64_t copied_bytes() const;  // 0: all others are mapped
  int64_t n_tensors() const;

 private:
  Weights();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct RopeParams {
  int n_dims = 0;
  bool neox = false;  // pairs (i, i + n/2) instead of (2i, 2i+1)
  float freq_base = 10000.0F;
  float freq_scale = 1.0F;
  float ext_factor = 0.0F;
  float attn_factor = 1.0F;
  float beta_fast = 32.0F;
  float beta_slow = 1.0F;
  int n_ctx_orig = 0;
  Tensor freq_factors = nullptr;  // f32 [n_dims/2] or nullptr
};

// A custom node: called on every thread of the pool; inputs and output are f32, contiguous where stated by the caller.
// `user` must outlive the graph.
using CustomFn = void (*)(ggml_tensor* dst, int ith, int nth, void* user);
Tensor custom_input(Tensor dst, int i);  // inputs[i] of the node
float* f32_data(Tensor t);               // contiguous f32 [n_rows, n_cols], inside a custom node or after finish()

// Builds one compute graph, allocates it once, runs it any number of times (a static decode graph is replayed).
// Shapes in comments are slowest dimension first: [n_tokens, n_embd] is ggml ne = {n_embd, n_tokens}.
class Graph {
 public:
  Graph(Compute& compute, const Weights& weights);
  ~Graph();
  Graph(Graph&&) noexcept;

  Tensor input_f32(int64_t rows, int64_t cols);  // f32 [rows, cols]
  Tensor input_i32(int64_t n);                   // i32 [n]

  Tensor get_rows(Tensor table, Tensor ids);  // [n, cols] f32, dequantised
  Tensor matmul(Tensor weight, Tensor x);     // weight [out, in], x [n, in] -> [n, out]; native/f32/bf16 by n and
                                              // PromptWeights
  Tensor add(Tensor a, Tensor b);             // b broadcast over rows
  Tensor mul(Tensor a, Tensor b);
  Tensor scale(Tensor a, float s);
  Tensor rms_norm(Tensor x, Tensor weight, float eps);  // weight may be nullptr
  Tensor swiglu(Tensor gate, Tensor up);                // silu(gate) * up
  Tensor beside(Tensor a, Tensor b);                    // [n, a] and [n, b] -> [n, a + b]
  Tensor gelu(Tensor x);                                // exact, by erf
  // matmul(weight, x) + bias, through gelu where asked: one node for the few rows of a step, where starts cost more
  // than the product.
  enum class Activation { none, gelu };
  Tensor affine(Tensor weight, Tensor bias, Tensor x, Activation activation);
  Tensor rope(Tensor x, int n_heads, int head_dim, Tensor positions,
              const RopeParams& params);                          // x [n, n_heads * head_dim], same shape out
  Tensor row_slice(Tensor x, int64_t first_row, int64_t n_rows);  // view
  Tensor custom(std::span<const Tensor> inputs, int64_t rows, int64_t cols, CustomFn fn, void* user);  // f32 [rows,
                                                                                                       // cols]

  void output(Tensor t);  // keeps t's memory readable after run()
  Status finish();        // allocates; call once, after the last op. Error: failed
  void set(Tensor t, std::span<const float> values);
  void set(Tensor t, std::span<const int32_t> values);
  void run();
  std::span<const float> read(Tensor t) const;  // valid until the next run()
  std::span<float> data(Tensor t);              // an input's or output's memory, after finish()
  int64_t scratch_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kedge::tensor
