// Draws that are the same on every machine.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kedge::eval {

// SplitMix64 (Steele, Lea and Flood 2014). The state begins as seed XOR the FNV-1a hash of `name`, so that the sample
// of a name is the same in every grid that has it, whatever its index there.
class Random {
 public:
  Random(uint64_t seed, std::string_view name);

  uint64_t next();
  int64_t below(int64_t n);                      // 0..n-1; 1 <= n < 2^32
  int64_t between(int64_t first, int64_t last);  // both included

  // Fisher and Yates.
  template <typename T>
  void shuffle(std::vector<T>& list) {
    for (size_t i = list.size(); i > 1; --i)
      std::swap(list[i - 1], list[static_cast<size_t>(below(static_cast<int64_t>(i)))]);
  }

  template <typename List>
  const auto& pick(const List& list) {
    return list[static_cast<size_t>(below(static_cast<int64_t>(std::size(list))))];
  }

 private:
  uint64_t state_;
};

}  // namespace kedge::eval
