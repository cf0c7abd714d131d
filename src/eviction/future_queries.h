// What moments of the queries so far (HeadInput::moments, before rotation) say of those to come. All f64.
#pragma once

#include <complex>
#include <vector>

#include "eviction/policy.h"

namespace kedge::eviction {

using Turns = std::vector<std::complex<double>>;  // of each pair of dimensions, as a factor

// Mean rotation of some positions, from the end of the sequence on (n_tokens + offset), magnitude included.
Turns mean_turns(const HeadInput& in, const std::vector<int64_t>& offsets);
// The same for offsets 0 .. n - 1.
Turns mean_turns(const HeadInput& in, int n);

// Mean and covariance of one query head's queries, turned: f64 [head_dim], [head_dim][head_dim].
struct FutureQueries {
  std::vector<double> mean;
  std::vector<double> covariance;
};
FutureQueries future_queries(const HeadInput& in, int member, const Turns& turns);

}  // namespace kedge::eviction
