// Anchor directions for scorers that project values on a head's output (AnDPro, OpenReview Tdl89SZItB).
#pragma once

#include <span>
#include <vector>

#include "eviction/policy.h"

namespace kedge::eviction {

// As the released code: y[m] -= sum over protected rows of a[m,i] v[i], with the weights before pooling.
// a f32 [m][n_rows], anchor f32 [m][head_dim].
void subtract_protected(const HeadInput& in, std::span<const float> a, std::vector<float>& anchor);

// The mean output of each query head over the whole window, once per query: f32 [n][group][head_dim].
std::vector<float> window_mean(const HeadInput& in, int n);

// The running mean of the sequence's last outputs, once per query; the window's mean where none is kept.
std::vector<float> running_mean(const HeadInput& in, int n);

}  // namespace kedge::eviction
