// How fast this machine reads memory: the wall that attention over a long cache can at best reach.
#pragma once

#include <cstddef>

#include "base/executor.h"

namespace kedge {

// Memory as the KV store's arena is: mapped, huge pages asked for, touched. Freed with the object.
class ReadBuffer {
 public:
  explicit ReadBuffer(size_t n_bytes);
  ~ReadBuffer();
  ReadBuffer(const ReadBuffer&) = delete;
  ReadBuffer& operator=(const ReadBuffer&) = delete;
  bool ok() const { return at_ != nullptr; }  // false: no memory
  size_t n_bytes() const { return n_bytes_; }
  const std::byte* data() const { return at_; }

 private:
  size_t n_bytes_;
  std::byte* at_;
};

// Seconds to read the whole buffer once with all threads: the best of several ways (one to four streams a thread, left
// to the hardware or prefetched), because the wall is what the memory gives, not what one loop reaches.
double best_read_seconds(const ReadBuffer& buffer, Executor& executor);

}  // namespace kedge
