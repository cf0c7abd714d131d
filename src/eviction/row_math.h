// Sums over the rows of one head that several scorers need. Rows are read in blocks and turned, so that a vector lane
// is a row and no sum runs across lanes. All f32; scratch is a few blocks.
#pragma once

#include <span>
#include <vector>

#include "eviction/policy.h"

namespace kedge::eviction {

enum class Part { keys, values };
enum class Norm { l1, l2, l2_squared };

// 1 / mean of `values`, f32 [n_rows], over the head's unprotected rows; 0 where that mean is not above 0.
double unit_mean(const HeadInput& in, std::span<const float> values);

// Norm of each key or value row: f32 [n_rows].
std::vector<float> row_norms(const KvHeadView& rows, Part part, Norm norm);

// out[m][i] = factor * dot(x[m], k[i]).  x f32 [n][head_dim], out f32 [n][n_rows].
void key_products(const KvHeadView& rows, const float* x, int n, float factor, std::span<float> out);

// What the outputs lose with each row alone:
//   sum[i] += sum over m of  weight[m][i] * || own * v[i] + lean[m][i] * (v[i] - y[m]) ||^2
struct OutputErrors {
  const float* y = nullptr;       // f32 [n][head_dim]
  int n = 0;                      // outputs
  const float* weight = nullptr;  // f32 [n][n_rows]
  const float* lean = nullptr;    // f32 [n][n_rows]; nullptr: 1
  float own = 0;
};
void add_output_errors(const KvHeadView& rows, const OutputErrors& errors, std::span<float> sum);

// ||W_O v[i]||_1, the mean over the group's heads: f32 [n_rows]. Needs HeadInput::w_o.
std::vector<float> projected_norms(const HeadInput& in);

// Redundancy of keys as R-KV counts it: for each row i the mean over the rows m of cos(k[m], k[i]), where i itself, and
// the last row whose cosine with m is above `threshold`, count as 0. f32 [n_rows]; n^2 * head_dim products, n *
// head_dim floats of scratch.
std::vector<float> key_redundancy(const KvHeadView& rows, float threshold);

// Unit keys, f32 [n_rows][head_dim]; a key of no length stays 0.
std::vector<float> unit_keys(const KvHeadView& rows);

}  // namespace kedge::eviction
