#include "base/huge_pages.h"

#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>

namespace kedge {
size_t page_bytes() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

bool grants_huge_pages() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string line;
  std::getline(file, line);  // "always [madvise] never"
  return line.find("[always]") != std::string::npos || line.find("[madvise]") != std::string::npos;
}

void advise_huge_pages(std::span<std::byte> memory) {
  const auto begin = round_up(reinterpret_cast<uintptr_t>(memory.data()), kHugePageBytes);
  const auto end = reinterpret_cast<uintptr_t>(memory.data() + memory.size()) / kHugePageBytes * kHugePageBytes;
  if (begin < end)
    (void)madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

std::byte* map_huge_pages(size_t n_bytes, size_t n_huge) {
  const size_t wide = round_up(n_bytes, page_bytes()) + kHugePageBytes;
  void* mapping = mmap(nullptr, wide, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED)
    return nullptr;
  // What lies before the first huge page and behind the last byte goes back.
  auto* first = static_cast<std::byte*>(mapping);
  auto* at = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<uintptr_t>(first), kHugePageBytes));
  if (at > first)
    munmap(first, static_cast<size_t>(at - first));
  std::byte* end = at + round_up(n_bytes, page_bytes());
  if (end < first + wide)
    munmap(end, static_cast<size_t>(first + wide - end));
  advise_huge_pages({at, n_huge});
  return at;
}

void put_heap_in_huge_pages() {
  constexpr int kStep = 128 << 20;
  if (!grants_huge_pages())
    return;
  (void)mallopt(M_ARENA_MAX, 1);               // threads' own arenas are mappings that nobody advises
  (void)mallopt(M_MMAP_THRESHOLD, 32 << 20);   // the largest that is allowed: vectors come from the heap
  (void)mallopt(M_TRIM_THRESHOLD, 2 * kStep);  // freed memory is used again
  (void)mallopt(M_TOP_PAD, kStep);
  // The next growth of the heap is one step. Later ones are mappings of their own, without this advice.
  auto* before = static_cast<std::byte*>(sbrk(0));
  std::free(std::malloc(kHugePageBytes));
  auto* after = static_cast<std::byte*>(sbrk(0));
  if (after > before)
    advise_huge_pages({before, after});
}

void unmap_huge_pages(std::byte* at, size_t n_bytes) { munmap(at, round_up(n_bytes, page_bytes())); }

}  // namespace kedge
