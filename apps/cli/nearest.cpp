#include "nearest.h"

#include <algorithm>
#include <vector>

namespace kedge::cli {

int edit_distance(std::string_view a, std::string_view b) {
  const size_t width = b.size() + 1;
  std::vector<int> d((a.size() + 1) * width);  // [a.size() + 1][b.size() + 1]
  for (size_t i = 0; i <= a.size(); ++i)
    d[i * width] = static_cast<int>(i);
  for (size_t j = 0; j <= b.size(); ++j)
    d[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const int change = a[i - 1] == b[j - 1] ? 0 : 1;
      int best = std::min({d[(i - 1) * width + j] + 1, d[i * width + j - 1] + 1, d[(i - 1) * width + j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        best = std::min(best, d[(i - 2) * width + j - 2] + 1);
      }
      d[i * width + j] = best;
    }
  }
  return d.back();
}

std::string nearest(std::string_view word, std::span<const std::string> candidates) {
  const auto shared = [word](const std::string& candidate) {
    const auto end = std::mismatch(word.begin(), word.end(), candidate.begin(), candidate.end()).first;
    return end - word.begin();
  };
  const std::string* best = nullptr;
  int best_distance = 0;
  for (const std::string& candidate : candidates) {
    const int distance = edit_distance(word, candidate);
    if (best != nullptr && distance > best_distance)
      continue;
    if (best != nullptr && distance == best_distance && shared(candidate) <= shared(*best))
      continue;
    best = &candidate;
    best_distance = distance;
  }
  return best == nullptr ? std::string() : *best;
}

}  // namespace kedge::cli
