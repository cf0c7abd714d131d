#include "tensor/compute.h"

#include <string>

#include "base/check.h"
#include "base/thread_order.h"
#include "tensor/compute_impl.h"
#include "tensor/log.h"

namespace kedge::tensor {
namespace {

// The CPUs of the process as they were before any Compute pinned a thread. Pinning narrows the mask of the calling
// thread, and threads started later inherit it: read again, the mask would shrink to one CPU.
const cpu_set_t& process_cpus() {
  static const cpu_set_t cpus = [] {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set) != 0 || CPU_COUNT(&set) == 0)
      CPU_SET(0, &set);
    return set;
  }();
  return cpus;
}

std::vector<int> cpu_list(const cpu_set_t& set) {
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE && cpu < GGML_MAX_N_THREADS; ++cpu) {
    if (CPU_ISSET(cpu, &set))
      cpus.push_back(cpu);
  }
  return cpus;
}

void call_launch(ggml_tensor* /*dst*/, int ith, int nth, void* user) {
  const BetweenBarriers order;
  (*static_cast<Compute::Impl*>(user)->launch_fn)(ith, nth);
}

// Narrows the calling thread to one CPU while a graph runs, and gives it back what it had: a thread that stayed pinned
// would hand its one CPU down to every thread that its owner starts later. Three system calls, about a microsecond.
class PinScope {
 public:
  PinScope(bool pin, const cpu_set_t& cpu) : pinned_(pin && sched_getaffinity(0, sizeof(before_), &before_) == 0) {
    if (pinned_)
      sched_setaffinity(0, sizeof(cpu), &cpu);  // a refusal costs speed, nothing else
  }
  ~PinScope() {
    if (pinned_)
      sched_setaffinity(0, sizeof(before_), &before_);
  }
  PinScope(const PinScope&) = delete;
  PinScope& operator=(const PinScope&) = delete;

 private:
  cpu_set_t before_{};
  bool pinned_;
};

ggml_threadpool_t new_threads(int n_threads, bool pin, const std::vector<int>& cpus) {
  ggml_threadpool_params params = ggml_threadpool_params_default(n_threads);
  if (pin) {
    for (int i = 0; i < n_threads; ++i)
      params.cpumask[cpus[static_cast<size_t>(i)]] = true;
  }
  params.strict_cpu = pin;
  // Polling makes a launch cost half a microsecond. Threads that share a CPU would spin against each other: then they
  // sleep.
  params.poll = n_threads <= static_cast<int>(cpus.size()) ? 50 : 0;
  return ggml_threadpool_new(&params);
}

void build_launch(Compute::Impl& impl) {
  const size_t bytes = 4 * ggml_tensor_overhead() + ggml_graph_overhead_custom(8, false);
  impl.launch_context.reset(ggml_init({.mem_size = bytes, .mem_buffer = nullptr, .no_alloc = true}));
  ggml_context* context = impl.launch_context.get();
  impl.launch_graph = ggml_new_graph_custom(context, 8, false);
  ggml_tensor* node =
      ggml_custom_4d(context, GGML_TYPE_F32, 1, 1, 1, 1, nullptr, 0, call_launch, GGML_N_TASKS_MAX, &impl);
  node->data = &impl.launch_result;
  ggml_build_forward_expand(impl.launch_graph, node);
  impl.launch_plan = impl.plan(impl.launch_graph);
}

}  // namespace

Compute::Impl::~Impl() {
  launch_context.reset();
  spare_scratch.clear();
  if (backend != nullptr)
    ggml_backend_free(backend);
  if (threads != nullptr)
    ggml_threadpool_free(threads);
}

ggml_cplan Compute::Impl::plan(ggml_cgraph* graph) {
  ggml_cplan result = ggml_graph_plan(graph, n_threads, threads);
  if (result.work_size > work.size())
    work.resize(result.work_size);
  return result;
}

void Compute::Impl::compute(ggml_cgraph* graph, ggml_cplan& graph_plan) {
  const PinScope pin(pinned, caller_cpu);
  graph_plan.work_data = work.data();  // may have moved since the plan was made
  publish_order();
  check(ggml_graph_compute(graph, &graph_plan) == GGML_STATUS_SUCCESS, "a graph could not be computed");
  join_order();
}

GallocrPtr Compute::Impl::take_scratch() {
  if (spare_scratch.empty())
    return GallocrPtr(ggml_gallocr_new(ggml_backend_cpu_buffer_type()));
  GallocrPtr scratch = std::move(spare_scratch.back());
  spare_scratch.pop_back();
  return scratch;
}

Compute::Compute() : impl_(std::make_unique<Impl>()) {}
Compute::~Compute() = default;

Result<std::unique_ptr<Compute>> Compute::create(const ComputeOptions& options) {
  silence_ggml();
  const std::vector<int> cpus = cpu_list(process_cpus());
  if (options.n_threads < 0 || options.n_threads > GGML_MAX_N_THREADS) {
    return Error{ErrorCode::usage, "threads: found " + std::to_string(options.n_threads) + ", allowed 0.." +
                                       std::to_string(GGML_MAX_N_THREADS) + " (0: all " + std::to_string(cpus.size()) +
                                       " CPUs)"};
  }
  std::unique_ptr<Compute> compute(new Compute());
  Impl& impl = *compute->impl_;
  impl.n_threads = options.n_threads == 0 ? static_cast<int>(cpus.size()) : options.n_threads;
  // More threads than CPUs cannot each have one of their own; two pinned to one CPU make every barrier a time slice.
  impl.pinned = options.pin && impl.n_threads <= static_cast<int>(cpus.size());
  ggml_cpu_init();
  {
    const PinScope keep(impl.pinned, process_cpus());  // ggml pins the thread that creates a pool
    impl.threads = new_threads(impl.n_threads, impl.pinned, cpus);
  }
  impl.backend = ggml_backend_cpu_init();
  if (impl.threads == nullptr || impl.backend == nullptr)
    return Error{ErrorCode::failed, "threads: ggml could not start them"};
  ggml_backend_cpu_set_n_threads(impl.backend, impl.n_threads);
  ggml_backend_cpu_set_threadpool(impl.backend, impl.threads);
  CPU_ZERO(&impl.caller_cpu);
  CPU_SET(cpus.front(), &impl.caller_cpu);
  if (impl.pinned) {
    // ggml gives CPUs in mask order to its workers 1, 2, ... and the last to worker 0, the thread that created the
    // pool.
    CPU_ZERO(&impl.caller_cpu);
    CPU_SET(cpus[static_cast<size_t>(impl.n_threads - 1)], &impl.caller_cpu);
  }
  build_launch(impl);
  return compute;
}

int Compute::n_threads() const { return impl_->n_threads; }

void Compute::run(const std::function<void(int ith, int nth)>& fn) {
  if (impl_->n_threads == 1) {
    const PinScope pin(impl_->pinned, impl_->caller_cpu);
    fn(0, 1);
    return;
  }
  impl_->launch_fn = &fn;
  impl_->compute(impl_->launch_graph, impl_->launch_plan);
}

void Compute::release_scratch() {
  impl_->spare_scratch.clear();
  impl_->spare_scratch.shrink_to_fit();
}

}  // namespace kedge::tensor
