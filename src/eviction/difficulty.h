// How hard a context is for a head (Difficulty in eviction/policy.h), from the attention of its newest queries.
#pragma once

#include "eviction/policy.h"

namespace kedge::eviction {

inline constexpr int kDifficultyQueries = 4;  // newest queries that are looked at

// 0..1, mean over the newest queries and the group's heads; 1 where no query was observed.
//   entropy: -sum a log a / log(rows); one row: 0
//   error:   1 - sum of the largest ceil(min_share * rows) weights
double difficulty(Difficulty measure, const HeadInput& in, double min_share);

}  // namespace kedge::eviction
