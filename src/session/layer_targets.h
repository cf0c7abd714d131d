// What each layer may hold where the allocator weighs layers (Allocator::Layers::weighted). Pure arithmetic.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "session/planner.h"

namespace kedge::session {

struct LayerWeights {
  std::vector<double> weight;  // [n_layers], > 0
  int n_kv_heads = 1;
  int64_t fixed_rows = 1;  // rows per head that every layer keeps, whatever its weight: protected by number, and one
};

// Targets whose blocks (or exact rows) sum to those of n_layers times `mean`, less what nobody can use: a layer has no
// more than mean.most_tokens rows per head (0: no such limit). Beyond the fixed rows layers get parts in proportion to
// their weights; no layer gets less than these or than its even share, whichever is smaller. Targets of one prompt fit
// together while layers take turns: with a smaller mean no layer gets more, and growth is added for all layers alike.
std::vector<EvictionTarget> weigh_layers(const EvictionTarget& mean, const LayerWeights& layers);

}  // namespace kedge::session
