// A sequence's histories as bytes, for its file.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "session/snapshot.h"

namespace kedge::session {

//   n_added i64 [n_layers] | of each kv head that has moments: n_queries i64, sum f64, outer f64, length f64
//   | of each layer that shares a total: n_tokens i64, demand f64, number of measured i64, measured f64
std::vector<std::byte> history_to_bytes(const HistoryState& state, const std::vector<LayerNote>& notes);

// What is read into: vectors that say how many numbers there must be.
struct HistoryInto {
  HistoryState& state;
  std::vector<LayerNote>& notes;
  int64_t n_kv_heads = 0;
  int64_t n_tokens = 0;
};
// Any bytes are safe. Empty = fine; else what was found and what is allowed, and what was read into is of no use.
std::string history_from_bytes(std::span<const std::byte> bytes, const HistoryInto& into);

}  // namespace kedge::session
