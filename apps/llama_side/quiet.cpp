#include "llama_side/quiet.h"

#include <time.h>

#include <chrono>
#include <thread>

#include "base/clock.h"

namespace kedge::llama_side {
namespace {

double process_cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

bool wait_until_quiet(double limit_seconds) {
  const Stopwatch all;
  do {
    const double before = process_cpu_seconds();
    const Stopwatch watch;
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    if (process_cpu_seconds() - before < 0.1 * watch.seconds())
      return true;
  } while (all.seconds() < limit_seconds);
  return false;
}

}  // namespace kedge::llama_side
