// Memory in huge pages where the system grants them. A processor finds 4 KiB pages through a table that it keeps only
// in part; what reads a hundred megabytes for every token waits for that table more than for the memory.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <utility>

namespace kedge {

size_t page_bytes();  // small ones
inline size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }
inline constexpr size_t kHugePageBytes = size_t{2} << 20;

// Whether the system gives huge pages to those who ask (transparent_hugepage/enabled is always or madvise).
bool grants_huge_pages();

// Asks for huge pages where `memory` holds whole ones that were not touched yet. A refusal costs nothing.
void advise_huge_pages(std::span<std::byte> memory);

// Zeroed private memory, held as it is touched, that begins on a huge page; nullptr: none left (errno tells). The last,
// partial huge page stays small pages: no byte is held that was not asked for. n_huge: only the first so many bytes.
std::byte* map_huge_pages(size_t n_bytes, size_t n_huge);
inline std::byte* map_huge_pages(size_t n_bytes) { return map_huge_pages(n_bytes, n_bytes); }
void unmap_huge_pages(std::byte* at, size_t n_bytes);

// Has malloc take its memory from the system in large steps of huge pages, keep it, and share it between threads. For
// the start of a program: what was allocated before stays where it is. Does nothing where no huge pages are granted.
void put_heap_in_huge_pages();

// Such memory with an owner.
class HugePages {
 public:
  HugePages() = default;
  explicit HugePages(size_t n_bytes) : at_(map_huge_pages(n_bytes)), n_bytes_(at_ != nullptr ? n_bytes : 0) {}
  ~HugePages() {
    if (at_ != nullptr)
      unmap_huge_pages(at_, n_bytes_);
  }
  HugePages(HugePages&& other) noexcept
      : at_(std::exchange(other.at_, nullptr)), n_bytes_(std::exchange(other.n_bytes_, 0)) {}
  HugePages& operator=(HugePages&& other) noexcept {
    std::swap(at_, other.at_);
    std::swap(n_bytes_, other.n_bytes_);
    return *this;
  }
  std::span<std::byte> bytes() const { return {at_, n_bytes_}; }  // empty: there was none

 private:
  std::byte* at_ = nullptr;
  size_t n_bytes_ = 0;
};

// For containers that are written or read at every token: from one huge page on they lie in huge pages.
template <typename T>
struct HugePageAllocator {
  using value_type = T;
  HugePageAllocator() = default;
  template <typename U>
  HugePageAllocator(const HugePageAllocator<U>& /*other*/) {}  // NOLINT(google-explicit-constructor)

  T* allocate(size_t n) {
    if (n * sizeof(T) < kHugePageBytes)
      return std::allocator<T>().allocate(n);
    if (std::byte* at = map_huge_pages(n * sizeof(T)); at != nullptr)
      return reinterpret_cast<T*>(at);
    throw std::bad_alloc();
  }
  void deallocate(T* at, size_t n) {
    if (n * sizeof(T) < kHugePageBytes)
      std::allocator<T>().deallocate(at, n);
    else
      unmap_huge_pages(reinterpret_cast<std::byte*>(at), n * sizeof(T));
  }
  friend bool operator==(const HugePageAllocator& /*a*/, const HugePageAllocator& /*b*/) { return true; }
};

}  // namespace kedge
