#include "eviction/anchor.h"

#include <algorithm>
#include <cstddef>

#include "base/check.h"
#include "eviction/window_scorer.h"

namespace kedge::eviction {
namespace {

std::vector<float> repeated(std::span<const float> once, int n) {
  std::vector<float> all;
  for (int t = 0; t < n; ++t)
    all.insert(all.end(), once.begin(), once.end());
  return all;
}

}  // namespace

void subtract_protected(const HeadInput& in, std::span<const float> a, std::vector<float>& anchor) {
  const size_t dim = static_cast<size_t>(in.rows.head_dim);
  const size_t n_rows = static_cast<size_t>(in.rows.n_rows);
  std::vector<float> v(kBlockRows * dim);
  for (int32_t begin = 0; begin < in.rows.n_rows; begin += kBlockRows) {
    const int32_t end = std::min(begin + kBlockRows, in.rows.n_rows);
    const auto flags = in.is_protected.empty() ? in.is_protected : in.is_protected.subspan(begin, end - begin);
    if (std::all_of(flags.begin(), flags.end(), [](uint8_t flag) { return flag == 0; }))
      continue;
    read_rows(in.rows, begin, end, nullptr, v.data());
    for (size_t r = 0; r < flags.size(); ++r) {
      if (flags[r] == 0)
        continue;
      for (size_t m = 0; m < anchor.size() / dim; ++m) {
        const float weight = a[m * n_rows + static_cast<size_t>(begin) + r];
        for (size_t j = 0; j < dim; ++j)
          anchor[m * dim + j] -= weight * v[r * dim + j];
      }
    }
  }
}

std::vector<float> window_mean(const HeadInput& in, int n) {
  const size_t query_floats = static_cast<size_t>(in.group) * static_cast<size_t>(in.rows.head_dim);
  std::vector<float> mean(query_floats, 0.0F);
  for (size_t t = 0; t < static_cast<size_t>(in.n_window); ++t) {
    for (size_t j = 0; j < query_floats; ++j)
      mean[j] += in.y[t * query_floats + j];
  }
  for (float& value : mean)
    value /= static_cast<float>(in.n_window);
  return repeated(mean, n);
}

std::vector<float> running_mean(const HeadInput& in, int n) {
  return in.running_y.empty() ? window_mean(in, n) : repeated(in.running_y, n);
}

void add_anchor_scores(const HeadInput& in, int begin, int end, int pool, std::span<float> sum,
                       const ChangeAnchor& change) {
  check(in.y != nullptr || begin >= end, "a projection needs the heads' outputs");
  const auto n_rows = static_cast<size_t>(in.rows.n_rows);
  const size_t query_floats = static_cast<size_t>(in.group) * static_cast<size_t>(in.rows.head_dim);
  for_weight_batches(in, begin, end, [&](int t, int n, std::span<float> a) {
    const float* first = in.y + static_cast<size_t>(t) * query_floats;
    std::vector<float> anchor(first, first + static_cast<size_t>(n) * query_floats);
    if (change)
      change(n, a, anchor);
    for (size_t at = 0; at < a.size(); at += n_rows)
      max_pool(a.subspan(at, n_rows), pool);
    in.kernels->anchor_scores(in.rows, a.data(), anchor.data(), n * in.group, sum.data());
  });
}

}  // namespace kedge::eviction
