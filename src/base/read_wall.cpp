#include "base/read_wall.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "base/clock.h"
#include "base/huge_pages.h"

namespace kedge {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kLineBytes = 64;

// Reads every cache line once, several streams per thread, each prefetched `ahead_bytes` ahead (0: left to the
// hardware).
uint64_t read_all(const ReadBuffer& buffer, size_t n_streams, size_t ahead_bytes, Executor& executor) {
  std::atomic<uint64_t> total{0};
  executor.run([&](int ith, int nth) {
    const Share share = share_of(static_cast<long>(buffer.n_bytes() / kPageBytes), ith, nth);
    const size_t share_bytes = static_cast<size_t>(share.end - share.begin) * kPageBytes;
    const size_t stream_bytes = share_bytes / n_streams / kLineBytes * kLineBytes;
    const std::byte* begin = buffer.data() + static_cast<size_t>(share.begin) * kPageBytes;
    uint64_t sum = 0;
    for (size_t at = 0; at < stream_bytes; at += kLineBytes) {
      for (size_t s = 0; s < n_streams; ++s) {
        const std::byte* line = begin + s * stream_bytes + at;
        if (ahead_bytes > 0)
          __builtin_prefetch(line + ahead_bytes, 0, 2);
        uint64_t words[8];
        std::memcpy(words, line, sizeof(words));
        for (const uint64_t word : words)
          sum += word;
      }
    }
    total += sum;
  });
  return total;
}

}  // namespace

ReadBuffer::ReadBuffer(size_t n_bytes) : n_bytes_(n_bytes), at_(nullptr) {
  at_ = map_huge_pages(n_bytes);
  if (at_ != nullptr)
    std::memset(at_, 1, n_bytes);
}

ReadBuffer::~ReadBuffer() {
  if (at_ != nullptr)
    unmap_huge_pages(at_, n_bytes_);
}

double best_read_seconds(const ReadBuffer& buffer, Executor& executor) {
  check(buffer.ok(), "memory for the read buffer");
  double best = 1e9;
  for (const size_t n_streams : {1, 2, 4}) {
    for (const size_t ahead : {0, 1024, 4096}) {
      const Stopwatch watch;
      const uint64_t sum = read_all(buffer, n_streams, ahead, executor);
      check(sum != 0, "the buffer was read");
      best = std::min(best, watch.seconds());
    }
  }
  return best;
}

}  // namespace kedge
