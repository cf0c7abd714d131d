#include "eviction/window_scorer.h"

#include <algorithm>
#include <cstddef>
#include <memory>

#include "base/check.h"

namespace kedge::eviction {
namespace {

constexpr int64_t kScratchFloats = int64_t{1} << 19;  // 2 MiB: about an L2 cache, and little beside any budget

}  // namespace

HeadInput last_queries(HeadInput in, int window) {
  const int drop = in.n_window - std::clamp(window, 0, in.n_window);
  const ptrdiff_t floats = ptrdiff_t{drop} * in.group * in.rows.head_dim;
  if (drop > 0) {
    in.q += floats;
    in.y += floats;
    in.query_positions += drop;
    in.n_window -= drop;
  }
  return in;
}

void score_by_position(const HeadInput& in, std::span<float> score) {
  for (int32_t i = 0; i < in.rows.n_rows; ++i)
    score[static_cast<size_t>(i)] = static_cast<float>(in.rows.position(i));
}

int32_t rows_before_window(const HeadInput& in) {
  int32_t n_before = in.rows.n_rows;
  while (n_before > 0 && in.rows.position(n_before - 1) >= in.query_positions[0])
    --n_before;
  return n_before;
}

void lift_window_rows(std::span<float> score, int32_t n_before) {
  const size_t first = static_cast<size_t>(n_before);
  for (size_t i = first; i < score.size(); ++i)
    score[i] = 2.0F + static_cast<float>(i - first) / static_cast<float>(score.size());
}

void average_over_heads(std::span<const HeadInput> heads, std::span<std::vector<float>> score) {
  std::vector<int32_t> next(heads.size(), 0);
  for (;;) {
    int32_t position = INT32_MAX;  // the lowest that has not been averaged
    for (size_t h = 0; h < heads.size(); ++h) {
      if (next[h] < heads[h].rows.n_rows)
        position = std::min(position, heads[h].rows.position(next[h]));
    }
    if (position == INT32_MAX)
      return;
    std::vector<float*> same;
    double sum = 0;
    for (size_t h = 0; h < heads.size(); ++h) {
      if (next[h] >= heads[h].rows.n_rows || heads[h].rows.position(next[h]) != position)
        continue;
      same.push_back(&score[h][static_cast<size_t>(next[h]++)]);
      sum += *same.back();
    }
    for (float* one : same)
      *one = static_cast<float>(sum / static_cast<double>(same.size()));
  }
}

void for_weights(const AttentionKernels& kernels, const KvHeadView& rows, const TileQueries& tile,
                 const UseWeights& use) {
  const int64_t floats_each = int64_t{tile.group} * rows.n_rows;
  if (floats_each == 0 || tile.n_queries == 0)
    return;
  const int batch = static_cast<int>(std::clamp<int64_t>(kScratchFloats / floats_each, 1, tile.n_queries));
  const auto weights = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(batch * floats_each));
  for (int t = 0; t < tile.n_queries; t += batch) {
    TileQueries part = tile;
    part.q += tile.row_stride * t;
    part.positions += t;
    part.n_queries = std::min(batch, tile.n_queries - t);
    kernels.attention_weights(rows, part, weights.get());
    use(t, part.n_queries, {weights.get(), static_cast<size_t>(part.n_queries * floats_each)});
  }
}

void for_weight_batches(const HeadInput& in, int begin, int end, const UseWeights& use) {
  if (in.rows.n_rows == 0 || begin >= end)
    return;
  check(in.kernels != nullptr && in.q != nullptr && in.query_positions != nullptr, "a window scorer needs its queries");
  const long query_floats = static_cast<long>(in.group) * in.rows.head_dim;
  const TileQueries tile{.q = in.q + begin * query_floats,
                         .row_stride = query_floats,
                         .head_stride = in.rows.head_dim,
                         .positions = in.query_positions + begin,
                         .n_queries = end - begin,
                         .group = in.group,
                         .scale = in.scale};
  for_weights(*in.kernels, in.rows, tile, [&](int t, int n, std::span<float> a) { use(begin + t, n, a); });
}

void max_pool(std::span<float> values, int width) {
  if (width <= 1)
    return;
  const size_t n = values.size();
  const size_t half = static_cast<size_t>(width / 2);
  // padded[i] is values[i - half]; zeros outside never win. Doubling: after the steps padded[i] is the maximum of
  // `span` values from i on, and two such spans cover the window.
  std::vector<float> padded(n + 2 * half, 0.0F);
  std::copy(values.begin(), values.end(), padded.begin() + half);
  size_t span = 1;
  size_t end = padded.size();
  for (; span * 2 <= static_cast<size_t>(width); span *= 2) {
    end -= span;
    for (size_t i = 0; i < end; ++i)
      padded[i] = std::max(padded[i], padded[i + span]);
  }
  const size_t second = static_cast<size_t>(width) - span;
  for (size_t i = 0; i < n; ++i)
    values[i] = std::max(padded[i], padded[i + second]);
}

void average_pool(std::span<float> values, int width) {
  if (width <= 1)
    return;
  const int n = static_cast<int>(values.size());
  const int half = width / 2;
  const std::vector<float> from(values.begin(), values.end());
  for (int i = 0; i < n; ++i) {
    float sum = 0;
    for (int j = std::max(i - half, 0); j <= std::min(i + half, n - 1); ++j)
      sum += from[static_cast<size_t>(j)];
    values[static_cast<size_t>(i)] = sum / static_cast<float>(width);
  }
}

void WindowScorer::score(const HeadInput& in, std::span<float> score) const {
  const HeadInput head = last_queries(in, window_);
  if (head.n_window == 0)
    return score_by_position(head, score);
  std::fill(score.begin(), score.end(), 0.0F);
  add_queries(head, 0, head.n_window, score);
  finish(head, score);
}

}  // namespace kedge::eviction
