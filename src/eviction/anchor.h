// Anchor directions for scorers that project values on a head's output (AnDPro, OpenReview Tdl89SZItB).
#pragma once

#include <functional>
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

// sum[i] += sum over queries [begin, end) of the window and the group's heads of a[t,g,i] * dot(anchor[t,g], v[i]),
// with each query's weights max-pooled along the rows over `pool`. The anchor is y; `change` may make another one of
// it: it gets the number of queries, their weights before pooling f32 [n * group][n_rows], and y f32
// [n][group][head_dim].
using ChangeAnchor = std::function<void(int n, std::span<const float> a, std::vector<float>& anchor)>;
void add_anchor_scores(const HeadInput& in, int begin, int end, int pool, std::span<float> sum,
                       const ChangeAnchor& change = {});

}  // namespace kedge::eviction
