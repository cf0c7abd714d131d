#include "eval/metrics/distance.h"

#include <algorithm>
#include <bit>
#include <unordered_map>
#include <vector>

namespace kedge::eval {
namespace {

constexpr size_t kMaxPattern = size_t{1} << 16;
constexpr size_t kMaxProduct = size_t{1} << 32;

// The pair with equal ends taken off, shorter side first, and what the bound of work leaves out.
struct Pair {
  Symbols pattern;
  Symbols text;
  int64_t n_equal = 0;         // symbols taken off both ends
  int64_t pattern_beyond = 0;  // symbols of each side that are not compared
  int64_t text_beyond = 0;
};

Pair prepare(Symbols a, Symbols b) {
  Pair pair;
  const size_t head = static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
  a = a.subspan(head);
  b = b.subspan(head);
  size_t tail = 0;
  while (tail < std::min(a.size(), b.size()) && a[a.size() - 1 - tail] == b[b.size() - 1 - tail])
    ++tail;
  pair.n_equal = static_cast<int64_t>(head + tail);
  pair.pattern = a.first(a.size() - tail);
  pair.text = b.first(b.size() - tail);
  if (pair.pattern.size() > pair.text.size())
    std::swap(pair.pattern, pair.text);
  const size_t n_pattern = std::min(pair.pattern.size(), kMaxPattern);
  const size_t n_text = std::min(pair.text.size(), kMaxProduct / std::max<size_t>(n_pattern, 1));
  pair.pattern_beyond = static_cast<int64_t>(pair.pattern.size() - n_pattern);
  pair.text_beyond = static_cast<int64_t>(pair.text.size() - n_text);
  pair.pattern = pair.pattern.first(n_pattern);
  pair.text = pair.text.first(n_text);
  return pair;
}

// Which of up to 64 symbols of the pattern equal a symbol: one bit each. Symbols are renumbered densely once, so that
// a look-up is one load.
class Matches {
 public:
  explicit Matches(const Pair& pair) : pattern_(pair.pattern.size()), text_(pair.text.size()) {
    std::unordered_map<uint32_t, uint32_t> ids;
    for (size_t i = 0; i < pattern_.size(); ++i)
      pattern_[i] = ids.try_emplace(pair.pattern[i], static_cast<uint32_t>(ids.size())).first->second;
    for (size_t i = 0; i < text_.size(); ++i) {
      const auto found = ids.find(pair.text[i]);
      text_[i] = found == ids.end() ? static_cast<uint32_t>(ids.size()) : found->second;
    }
    masks_.resize(ids.size() + 1);  // the last: symbols that the pattern does not have
  }

  // Points at the 64 symbols from `begin` on.
  void move_to(size_t begin) {
    for (size_t i = begin_; i < end_; ++i)
      masks_[pattern_[i]] = 0;
    begin_ = begin;
    end_ = std::min(begin + 64, pattern_.size());
    for (size_t i = begin_; i < end_; ++i)
      masks_[pattern_[i]] |= uint64_t{1} << (i - begin_);
  }

  uint64_t at(size_t text_index) const { return masks_[text_[text_index]]; }

 private:
  std::vector<uint32_t> pattern_;
  std::vector<uint32_t> text_;
  std::vector<uint64_t> masks_;  // [distinct symbols of the pattern + 1]
  size_t begin_ = 0;
  size_t end_ = 0;
};

}  // namespace

int64_t common_subsequence(Symbols a, Symbols b) {
  const Pair pair = prepare(a, b);
  Matches matches(pair);
  std::vector<uint8_t> carries(pair.text.size());  // of the addition, from the block before
  int64_t length = pair.n_equal;
  for (size_t begin = 0; begin < pair.pattern.size(); begin += 64) {
    matches.move_to(begin);
    uint64_t v = ~uint64_t{0};  // a zero bit: the subsequence grows in this row
    for (size_t j = 0; j < carries.size(); ++j) {
      const uint64_t u = v & matches.at(j);
      const uint64_t partial = v + u;
      const uint64_t sum = partial + carries[j];
      carries[j] = static_cast<uint8_t>(partial < v || sum < partial);
      v = sum | (v - u);
    }
    const size_t rows = std::min<size_t>(64, pair.pattern.size() - begin);
    const uint64_t used = rows == 64 ? ~uint64_t{0} : (uint64_t{1} << rows) - 1;
    length += std::popcount(~v & used);
  }
  return length;
}

int64_t levenshtein(Symbols a, Symbols b) {
  const Pair pair = prepare(a, b);
  // What lies beyond the bound is replaced pairwise, the rest inserted.
  const int64_t beyond = std::max(pair.pattern_beyond, pair.text_beyond);
  if (pair.pattern.empty())
    return static_cast<int64_t>(pair.text.size()) + beyond;
  Matches matches(pair);
  std::vector<int8_t> steps(pair.text.size(), 1);  // D[row][j + 1] - D[row][j] at the row above the block
  int64_t distance = static_cast<int64_t>(pair.pattern.size()) + beyond;
  for (size_t begin = 0; begin < pair.pattern.size(); begin += 64) {
    matches.move_to(begin);
    const size_t rows = std::min<size_t>(64, pair.pattern.size() - begin);
    uint64_t plus = ~uint64_t{0}, minus = 0;  // vertical differences +1, -1
    for (size_t j = 0; j < steps.size(); ++j) {
      const uint64_t below = steps[j]<0, above = steps[j]> 0;
      const uint64_t match = matches.at(j);
      const uint64_t xv = match | minus;
      const uint64_t eq = match | below;
      const uint64_t xh = (((eq & plus) + plus) ^ plus) | eq;
      uint64_t right_plus = minus | ~(xh | plus);
      uint64_t right_minus = plus & xh;
      steps[j] = static_cast<int8_t>(static_cast<int>((right_plus >> (rows - 1)) & 1) -
                                     static_cast<int>((right_minus >> (rows - 1)) & 1));
      right_plus = (right_plus << 1) | above;
      right_minus = (right_minus << 1) | below;
      plus = right_minus | ~(xv | right_plus);
      minus = right_plus & xv;
    }
  }
  for (const int8_t step : steps)
    distance += step;
  // Beyond the bound of work it may pass what replacing everything costs.
  return std::min(distance, static_cast<int64_t>(pair.text.size()) + pair.text_beyond);
}

}  // namespace kedge::eval
