#include "session/layer_targets.h"

#include <algorithm>
#include <limits>

#include "eviction/divide_rows.h"

namespace kedge::session {

namespace {

constexpr int64_t kMost = std::numeric_limits<int32_t>::max() / 2;

int64_t row_blocks(int64_t rows) { return (rows + kBlockRows - 1) / kBlockRows; }

// lo for everybody, the rest by weight up to hi; sums to min(total, n * hi).
std::vector<int64_t> divide_beyond(int64_t lo, int64_t hi, const std::vector<double>& weight, int64_t total) {
  const auto n = static_cast<int64_t>(weight.size());
  std::vector<eviction::Part> parts;
  for (const double one : weight)
    parts.push_back({.weight = one, .lo = 0, .hi = static_cast<int32_t>(std::clamp<int64_t>(hi - lo, 0, kMost))});
  std::vector<int64_t> out;
  for (const int32_t count : eviction::divide_by_weight(parts, total - n * lo))
    out.push_back(lo + count);
  return out;
}

}  // namespace

std::vector<EvictionTarget> weigh_layers(const EvictionTarget& mean, const LayerWeights& layers) {
  const int64_t heads = layers.n_kv_heads;
  const auto n_layers = static_cast<int64_t>(layers.weight.size());
  const int64_t most_rows = mean.most_tokens > 0 ? mean.most_tokens : kMost / heads;
  std::vector<EvictionTarget> targets(layers.weight.size(), mean);
  if (mean.rows_exact > 0) {
    const int64_t lo = std::min(heads * std::min(layers.fixed_rows, most_rows), mean.rows_exact);
    const auto rows = divide_beyond(lo, heads * most_rows, layers.weight, n_layers * mean.rows_exact);
    for (size_t l = 0; l < targets.size(); ++l)
      targets[l].rows_exact = rows[l];
    return targets;
  }
  // Without the whole blocks of growth: what a layer holds at first.
  const int64_t grown = heads * (mean.growth / kBlockRows);
  const int64_t base = mean.blocks - grown;
  const int64_t lo = std::min(heads * (row_blocks(std::min(layers.fixed_rows, most_rows)) + 1), base);
  const auto blocks =
      divide_beyond(lo, std::max(base, heads * (row_blocks(most_rows) + 1)), layers.weight, n_layers * base);
  for (size_t l = 0; l < targets.size(); ++l)
    targets[l].blocks = blocks[l] + grown;
  return targets;
}

}  // namespace kedge::session
