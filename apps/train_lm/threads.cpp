#include "train_lm/threads.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <sched.h>

#include <algorithm>

namespace kedge::lm {

int use_threads(int n) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) {
    const int n_cpus = CPU_COUNT(&allowed);
    n = n <= 0 ? n_cpus : n;
    // Threads that are started later stay within these CPUs, as the engine's do.
    int taken = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &allowed) && ++taken > n)
        CPU_CLR(cpu, &allowed);
    }
    sched_setaffinity(0, sizeof allowed, &allowed);
  }
  n = std::max(n, 1);
  at::set_num_threads(n);
  // OpenBLAS has threads of its own, and libtorch does not tell it; another BLAS has no such function.
  if (void* found = dlsym(RTLD_DEFAULT, "openblas_set_num_threads"); found != nullptr)
    reinterpret_cast<void (*)(int)>(found)(n);
  return n;
}

}  // namespace kedge::lm
