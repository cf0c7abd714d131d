#include "bench/memory.h"

#include <fcntl.h>
#include <unistd.h>

namespace kedge::bench {

// proc(5): writing 5 to clear_refs resets VmHWM of /proc/self/status.
bool reset_peak_rss() {
  const int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
  if (fd < 0)
    return false;
  const bool written = write(fd, "5", 1) == 1;
  close(fd);
  return written;
}

}  // namespace kedge::bench
