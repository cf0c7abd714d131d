#include "session/query_weights.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace kedge::session {
namespace {

constexpr size_t kSharedQueries = 16;

}  // namespace

std::vector<Range> blocks_of(std::span<const int32_t> positions) {
  std::vector<Range> blocks;
  for (size_t i = 0; i < positions.size(); ++i) {
    if (i == 0 || positions[i] / kSumQueries != positions[i - 1] / kSumQueries)
      blocks.push_back({i, i});
    blocks.back().end = i + 1;
  }
  return blocks;
}

std::vector<Range> tiles_of(std::span<const Range> blocks) {
  std::vector<Range> tiles;
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (tiles.empty() || blocks[i].end - blocks[tiles.back().begin].begin > kSharedQueries)
      tiles.push_back({i, i});
    tiles.back().end = i + 1;
  }
  return tiles;
}

SomeRows::SomeRows(const KvHeadView& head, const SomePositions& which) : view(head) {
  const auto row_at = [&](int32_t position) {
    int32_t low = 0;
    int32_t high = head.n_rows;
    while (low < high) {
      const int32_t middle = low + (high - low) / 2;
      if (head.position(middle) < position)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  };
  first = row_at(which.begin);
  const int32_t n_sinks = row_at(which.n_sinks);
  const int32_t end = row_at(which.end);
  const int32_t probe = row_at(which.probe);
  const RowRange near = {.begin = row_at(which.near_begin), .end = row_at(which.near_end)};
  const auto take = [&](int32_t part_begin, int32_t part_rows, const uint32_t* from, std::vector<uint32_t>& to) {
    for (int32_t block = 0; block * kBlockRows < part_rows; ++block) {
      const int32_t begin = part_begin + block * kBlockRows;
      const int32_t last = std::min(begin + kBlockRows, part_begin + part_rows);
      const bool is_near = which.every == 1 || (begin < near.end && last > near.begin);
      const bool is_sample = is_near || block % which.every == 0;
      const bool is_used = begin < n_sinks || (is_sample && begin < end && last > first) || last > probe;
      if (!is_used)
        continue;
      to.push_back(from[block]);
      const float of_sample = is_near ? 1.0F : is_sample ? static_cast<float>(which.every) : 0.0F;
      for (int32_t r = begin; r < last; ++r) {
        row.push_back(r);
        weight.push_back(r < n_sinks || r >= probe ? 1.0F : r >= first && r < end ? of_sample : 0.0F);
      }
    }
  };
  take(0, head.n_body(), head.block_ids, ids);
  const size_t n_body = row.size();
  take(head.n_body(), head.n_tail, head.tail_ids, tail_ids);
  view.block_ids = ids.data();
  view.tail_ids = tail_ids.data();
  view.n_rows = static_cast<int32_t>(row.size());
  view.n_tail = static_cast<int32_t>(row.size() - n_body);
}

float SomeRows::sum(std::span<const float> a) const {
  std::array<float, 8> part{};
  size_t i = 0;
  for (; i + part.size() <= a.size(); i += part.size()) {
    for (size_t j = 0; j < part.size(); ++j)
      part[j] += a[i + j] * weight[i + j];
  }
  for (; i < a.size(); ++i)
    part[0] += a[i] * weight[i];
  return std::accumulate(part.begin(), part.end(), 0.0F);
}

}  // namespace kedge::session
