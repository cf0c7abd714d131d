// Layers that share one total of rows (Allocator::Layers::shared).
//
// While a prompt is read layer by layer the layers seen so far share what the store can hold beside the next layer's
// rows. When a layer joins, the others are divided again from the scores of the rows they still have:
//
//   layer 0 scored: [0........]                      everything that fits beside layer 1
//   layer 1 scored: [0.....][1...]                   rows of 0 leave, by their stored scores
//   last one:       [0...][1..][2....]  = total      the plan's total over all layers
//
// Where the division is a top-k over scores that do not change (pooled-all, error), or gives every layer a share that
// only shrinks as layers join (entropy, fastgen), the rows that are kept in the end are those of one division over all
// layers with all their rows: a row that loses among few layers loses among more, as long as no total on the way is
// below the last one. The planner sees to that. Rounding to whole blocks may move a block per head, and of equal scores
// in different heads another may win.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/executor.h"
#include "eviction/policy.h"
#include "eviction/select.h"

namespace kedge::eviction {

// A layer that takes part, with what score_layer() said of the rows it still has.
struct SharedLayer {
  int layer = 0;
  std::vector<std::vector<float>> score;  // [kv head][row]
  std::vector<double> measured;           // [kv head]
  double demand = 1;
  int32_t scored_tokens = 0;  // rows from this position on have no score yet: protected
};

// For each head of `all.heads` in order: the heads of `layers`, one layer after the other.
struct Division {
  std::vector<std::vector<int32_t>> keep;          // row indices, ascending
  std::vector<std::vector<uint8_t>> is_protected;  // [row]
};
// Of `all` rows and layer are read; blocks_total, growth and rows_total are of all layers together.
Division divide_layers(const Allocator& allocator, const LayerInput& all, std::span<const SharedLayer> layers,
                       Executor& executor);

}  // namespace kedge::eviction
