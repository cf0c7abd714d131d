#include "base/executor.h"

#include <thread>
#include <vector>

namespace kedge {

void ThreadExecutor::run(const std::function<void(int, int)>& fn) {
  std::vector<std::thread> others;
  others.reserve(static_cast<size_t>(n_threads_ - 1));
  for (int ith = 1; ith < n_threads_; ++ith)
    others.emplace_back([&fn, ith, this] { fn(ith, n_threads_); });
  fn(0, n_threads_);
  for (std::thread& t : others)
    t.join();
}

}  // namespace kedge
