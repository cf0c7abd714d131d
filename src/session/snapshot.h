// What a timeline changes while it runs, apart from its rows: what a mark remembers, a fork copies and a file holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention/taps.h"
#include "kedge/model.h"
#include "kedge/stats.h"

namespace kedge::session {

struct Snapshot {
  int64_t n_tokens = 0;
  std::vector<Token> tokens;  // all that were read, evicted or not: n_tokens of them
  std::vector<float> logits;  // f32 [n_vocab], or empty
  attention::Taps taps{{}};
  Stats counters;             // what the timeline itself counts
  int64_t evicted_rows = 0;   // since the beginning of the sequence
  int64_t evicted_until = 0;  // length of the sequence at its last eviction
  int64_t peak_bytes = 0;
  size_t n_trace = 0;  // points of the memory trace
};

}  // namespace kedge::session
