// Rows per head -> whole blocks per head.
#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "eviction/compete.h"
#include "eviction/select.h"

namespace kedge::eviction {
namespace {

int32_t blocks_for(int64_t rows, int32_t growth) {
  return static_cast<int32_t>((rows + growth + kBlockRows - 1) / kBlockRows);
}

// Rows that blocks[h] blocks leave for head h to keep, within lo..hi.
std::vector<int32_t> rows_in(const std::vector<int32_t>& blocks, int32_t growth, const std::vector<int32_t>& lo,
                             const std::vector<int32_t>& hi) {
  std::vector<int32_t> rows(blocks.size());
  for (size_t h = 0; h < rows.size(); ++h)
    rows[h] = std::clamp(blocks[h] * kBlockRows - growth, lo[h], hi[h]);
  return rows;
}

int64_t sum_of(const std::vector<int32_t>& values) { return std::accumulate(values.begin(), values.end(), int64_t{0}); }

// Moves blocks one at a time until they sum to `total` or nobody can give or take: taken from whoever is furthest above
// its wish (of equals the higher head), given to whoever is furthest below it (of equals the lower head).
void settle(const std::vector<int32_t>& wish, const std::vector<int32_t>& lo, const std::vector<int32_t>& hi,
            int64_t total, std::vector<int32_t>& blocks) {
  const auto lack = [&](size_t h) { return int64_t{wish[h]} - int64_t{blocks[h]} * kBlockRows; };
  const size_t nobody = blocks.size();
  int64_t held = sum_of(blocks);
  while (held != total) {
    size_t best = nobody;
    for (size_t h = 0; h < blocks.size(); ++h) {
      const bool gives = held > total;
      if (gives ? blocks[h] <= lo[h] : blocks[h] >= hi[h])
        continue;
      if (best == nobody || (gives ? lack(h) <= lack(best) : lack(h) > lack(best)))
        best = h;
    }
    if (best == nobody)
      return;
    const int step = held > total ? -1 : 1;
    blocks[best] += step;
    held += step;
  }
}

}  // namespace

std::vector<int32_t> round_to_blocks(const RoundInput& in) {
  const size_t n = in.rows.size();
  check(in.minimum.size() == n && in.available.size() == n && in.growth >= 0, "one minimum and one limit per head");
  std::vector<int32_t> minimum(n);
  std::vector<int32_t> one_row(n);
  std::vector<int32_t> wish(n);  // rows + growth
  std::vector<int32_t> lo(n);    // blocks that the minimum takes
  std::vector<int32_t> hi(n);    // blocks that everything takes
  std::vector<int32_t> blocks(n);
  for (size_t h = 0; h < n; ++h) {
    one_row[h] = std::min(in.available[h], 1);
    minimum[h] = std::clamp(in.minimum[h], one_row[h], in.available[h]);
    wish[h] = std::clamp(in.rows[h], minimum[h], in.available[h]) + in.growth;
    lo[h] = blocks_for(minimum[h], in.growth);
    hi[h] = blocks_for(in.available[h], in.growth);
    blocks[h] = std::clamp(wish[h] / kBlockRows, lo[h], hi[h]);
  }
  if (sum_of(lo) > in.blocks_total) {  // impossible by the planner's arithmetic: lower the minima, keep a row each
    std::vector<int32_t> least(n);
    for (size_t h = 0; h < n; ++h)
      least[h] = blocks_for(one_row[h], in.growth);
    blocks = least;
    std::vector<int32_t> wish_of_lo = lo;
    for (int32_t& w : wish_of_lo)
      w *= kBlockRows;
    if (sum_of(least) < in.blocks_total)
      settle(wish_of_lo, least, lo, in.blocks_total, blocks);
    return rows_in(blocks, in.growth, one_row, minimum);
  }
  settle(wish, lo, hi, in.blocks_total, blocks);
  return rows_in(blocks, in.growth, minimum, in.available);
}

}  // namespace kedge::eviction
