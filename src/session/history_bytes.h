// A sequence's histories as bytes, for its file.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "session/snapshot.h"

namespace kedge::session {

//   n_added i64 [n_layers] | of each kv head that has moments: n_queries i64, sum f64, outer f64, length f64
std::vector<std::byte> history_to_bytes(const HistoryState& state);

// Fills `state`, whose vectors say how many numbers there must be. Any bytes are safe. Empty = fine; else what was
// found and what is allowed, and `state` is of no use.
std::string history_from_bytes(std::span<const std::byte> bytes, int64_t n_tokens, HistoryState& state);

}  // namespace kedge::session
