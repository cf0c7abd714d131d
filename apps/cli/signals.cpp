#include "signals.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

namespace kedge::cli {
namespace {

// The only globals: a handler can reach nothing else.
std::atomic<int> g_interrupts{0};
std::atomic<bool> g_terminated{false};
static_assert(std::atomic<int>::is_always_lock_free, "signal handlers may only touch lock-free atomics");

void on_signal(int signal) {
  if (signal == SIGTERM) {
    if (g_terminated.exchange(true))
      _exit(143);
  } else if (g_interrupts.fetch_add(1) > 0) {
    _exit(130);
  }
}

}  // namespace

void install_signal_handlers() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = 0;  // no SA_RESTART: a wait for input must end
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  signal(SIGPIPE, SIG_IGN);  // a closed pipe is an error of write(), and the statistics are still written
}

bool stop_requested() { return g_interrupts.load() > 0 || g_terminated.load(); }
bool terminated() { return g_terminated.load(); }
void forget_interrupt() { g_interrupts.store(0); }
int signal_exit_code() {
  if (g_terminated.load())
    return 143;
  return g_interrupts.load() > 0 ? 130 : 0;
}

}  // namespace kedge::cli
