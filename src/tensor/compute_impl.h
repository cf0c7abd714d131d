// What compute.cpp, weights.cpp and graph.cpp share. Not for other folders.
#pragma once

#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>
#include <sched.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tensor/compute.h"

namespace kedge::tensor {

struct GgmlContextFree {
  void operator()(ggml_context* context) const { ggml_free(context); }
};
struct GallocrFree {
  void operator()(ggml_gallocr_t gallocr) const { ggml_gallocr_free(gallocr); }
};
struct BufferFree {
  void operator()(ggml_backend_buffer_t buffer) const { ggml_backend_buffer_free(buffer); }
};
using ContextPtr = std::unique_ptr<ggml_context, GgmlContextFree>;
using GallocrPtr = std::unique_ptr<ggml_gallocr, GallocrFree>;
using BufferPtr = std::unique_ptr<ggml_backend_buffer, BufferFree>;

// All of a buffer of the CPU's.
inline std::span<std::byte> memory_of(ggml_backend_buffer_t buffer) {
  return {static_cast<std::byte*>(ggml_backend_buffer_get_base(buffer)), ggml_backend_buffer_get_size(buffer)};
}

struct Compute::Impl {
  int n_threads = 1;
  bool pinned = false;
  cpu_set_t caller_cpu{};  // where thread 0, the caller, belongs
  ggml_backend_t backend = nullptr;
  ggml_threadpool_t threads = nullptr;
  std::vector<uint8_t> work;  // ggml's scratch of one running graph; graphs of one Compute never run at the same time

  // Scratch of finished graphs, kept for the next: a prompt builds a graph per layer, and fresh pages from the kernel
  // cost as much as a third of the layer's arithmetic.
  std::vector<GallocrPtr> spare_scratch;

  // Executor::run is a graph of one custom node.
  ContextPtr launch_context;
  ggml_cgraph* launch_graph = nullptr;
  ggml_cplan launch_plan{};
  const std::function<void(int, int)>* launch_fn = nullptr;
  float launch_result = 0;

  ~Impl();
  ggml_cplan plan(ggml_cgraph* graph);
  void compute(ggml_cgraph* graph, ggml_cplan& plan);
  GallocrPtr take_scratch();
};

}  // namespace kedge::tensor
