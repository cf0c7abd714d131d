// Why rows stay: orders, ranks and parts of scores, for people. Nothing here decides anything.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "eviction/policy.h"

namespace kedge::eviction {

// Rows in the order in which select() would keep them under a growing budget with nothing protected, the one that stays
// longest first. i32 [n_rows].
std::vector<int32_t> keep_order(std::span<const float> score, int chunk);

// Rank of each row by its score among the unprotected rows of a head and n_dropped more that were dropped before and
// are below all of them. Ties by position: 1 = highest, 0 = lowest, a single row 1; protected rows -1. NaN ranks
// lowest. f32 [n_rows].
std::vector<float> score_ranks(std::span<const float> score, std::span<const uint8_t> is_protected,
                               int64_t n_dropped = 0);

// f32 [n_rows]: attention of the last queries summed over queries and the group's heads, each query's weights
// max-pooled along the rows with `pool` first (1: as they are).
std::vector<float> attention_part(const HeadInput& in, int pool);

}  // namespace kedge::eviction
