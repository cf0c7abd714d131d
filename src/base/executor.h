// Runs one function on every thread of a pool and waits: the only form of parallelism in Kedge.
// The model's pool is ggml's (tensor/compute.h); tests and tools use ThreadExecutor or SerialExecutor.
#pragma once

#include <atomic>
#include <functional>

namespace kedge {

class Executor {
 public:
  virtual ~Executor() = default;
  virtual int n_threads() const = 0;
  // Calls fn(ith, nth) once on each of nth = n_threads() threads and returns when all have returned.
  // fn must not throw and must not call run() again.
  virtual void run(const std::function<void(int ith, int nth)>& fn) = 0;
};

class SerialExecutor final : public Executor {
 public:
  int n_threads() const override { return 1; }
  void run(const std::function<void(int, int)>& fn) override { fn(0, 1); }
};

// Starts n threads per run(): slow to launch (tens of us), for tests and tools without a model.
class ThreadExecutor final : public Executor {
 public:
  explicit ThreadExecutor(int n_threads) : n_threads_(n_threads) {}
  int n_threads() const override { return n_threads_; }
  void run(const std::function<void(int, int)>& fn) override;

 private:
  int n_threads_;
};

// The half-open part [begin, end) of n items that thread ith of nth owns; contiguous, sizes differ by at most one.
struct Share {
  long begin;
  long end;
};
inline Share share_of(long n, int ith, int nth) { return {n * ith / nth, n * (ith + 1) / nth}; }

// Calls fn(i) for i in 0..n-1, each once, on whichever thread is free.
template <typename Function>
void for_each_index(Executor& executor, int n, const Function& fn) {
  std::atomic<int> next{0};
  executor.run([&](int, int) {
    for (int i = next.fetch_add(1); i < n; i = next.fetch_add(1))
      fn(i);
  });
}

}  // namespace kedge
