// Tells ThreadSanitizer of an order between threads that it cannot see: ggml's barriers, in a library that is not built
// with it. Nothing in other builds.
#pragma once

#if defined(__SANITIZE_THREAD__)
extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);
#endif

namespace kedge {

// Everything before any thread's publish_order() is before what follows this thread's next join_order().
#if defined(__SANITIZE_THREAD__)
inline char thread_order_address;
inline void publish_order() { __tsan_release(&thread_order_address); }
inline void join_order() { __tsan_acquire(&thread_order_address); }
#else
inline void publish_order() {}
inline void join_order() {}
#endif

// First line of a function that ggml's threads call between two barriers.
struct BetweenBarriers {
  BetweenBarriers() { join_order(); }
  ~BetweenBarriers() { publish_order(); }
  BetweenBarriers(const BetweenBarriers&) = delete;
  BetweenBarriers& operator=(const BetweenBarriers&) = delete;
};

}  // namespace kedge
