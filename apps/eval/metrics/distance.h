// Longest common subsequence and Levenshtein distance of two sequences of symbols.
#pragma once

#include <cstdint>
#include <span>

namespace kedge::eval {

using Symbols = std::span<const uint32_t>;

// Both take memory linear in the lengths and time of their product / 64 (bit-parallel: Myers 1999, Hyyro 2003 for the
// distance, Hyyro 2004 for the subsequence; 64 symbols of one side at a time, carries along the other).
//
// Work is bounded: what is equal at both ends is taken off first; of what is left, only the first 2^16 symbols of the
// shorter side and then as many of the longer as keep the product within 2^32 are compared, and symbols beyond count
// as without a partner. So a pair of texts of 10 MB takes seconds, and is exact wherever that limit is not reached;
// beyond it the subsequence is a lower bound and the distance an upper bound.
int64_t common_subsequence(Symbols a, Symbols b);
int64_t levenshtein(Symbols a, Symbols b);

}  // namespace kedge::eval
