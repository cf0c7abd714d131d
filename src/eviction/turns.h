// Layers that take turns: layer l is evicted when (tokens + phase of l) is a multiple of the period, so that a token
// carries the work of at most ceil(layers / period) layers. Nothing but the position decides, so any number of threads,
// and a sequence that was saved and restored, evicts at the same tokens.
#pragma once

#include "eviction/options.h"
#include "eviction/policy.h"

namespace kedge::eviction {

inline bool is_turn(const LayerMoment& at, bool staggered) {
  const int64_t period = at.period > 1 ? at.period : 1;
  const int64_t phase = staggered && at.n_layers > 0 ? at.layer * period / at.n_layers : 0;
  return (at.n_tokens + phase) % period == 0;
}

// The two options of every schedule that evicts at turns.
inline OptionInfo period_option() {
  return integer_option("n", "64", {1, 65536}, "generated tokens between two evictions of a layer");
}
inline OptionInfo stagger_option() {
  return choice_option("stagger", {"on", "off"}, "layers take turns, instead of all at one token");
}

}  // namespace kedge::eviction
