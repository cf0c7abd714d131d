// How allocators divide a total: evenly, by weights, by scores. Every result sums to exactly min(total, what there is),
// keeps the minima as Allocator::allocate() says, and grows with the total in no part downwards.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "eviction/policy.h"

namespace kedge::eviction {

// The same for every head, as far as its protected rows and its length allow.
std::vector<int32_t> divide_evenly(const LayerScores& layer, int64_t total);

// One top-k over the rows of all heads. `floor`, 0..1: the share of an even split that each head is sure of.
std::vector<int32_t> divide_by_scores(const LayerScores& layer, int64_t total, double floor);

// In proportion to weights, within lo..hi: counts are round(x * weight), with the one x that sums to the total; steps
// that fall together go to the lower index (Webster's method: no step is ever taken back). Weights that are not finite
// or below 1e-9 of the largest count as that; if none is above 0, all are equal. A total below the sum of lo: as
// level_fill().
struct Part {
  double weight = 1;
  int32_t lo = 0;
  int32_t hi = 0;
};
std::vector<int32_t> divide_by_weight(std::span<const Part> parts, int64_t total);
// A layer as one part, of weight 1: lo is the sum of its heads' minimum_rows(), hi all their rows.
Part part_of(const LayerScores& layer);
// Of heads: lo is minimum_rows(), hi their rows. `weight` [n_heads]; empty: equal weights.
std::vector<int32_t> divide_by_weight(const LayerScores& layer, std::span<const double> weight, int64_t total);

// How the total of a layer goes to its heads, as an option of allocators that are about layers.
enum class HeadRule { uniform, pooled };
OptionInfo head_rule_option(HeadRule fallback);  // "heads"
HeadRule head_rule(const OptionValues& options);
std::vector<int32_t> divide_layer(HeadRule rule, const LayerScores& layer, int64_t total);

// Heads of several layers as if they were of one, in order, and rows of such heads as rows of their layers.
LayerScores as_one_layer(std::span<const LayerScores> layers);
std::vector<std::vector<int32_t>> split_by_layer(std::span<const LayerScores> layers, std::span<const int32_t> rows);

}  // namespace kedge::eviction
