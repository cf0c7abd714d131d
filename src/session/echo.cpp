#include "session/echo.h"

#include <algorithm>
#include <cmath>

namespace kedge::session {
namespace {

constexpr float kLeastCounted = 1e-3F;  // of a query's attention; below that the rest decides nothing

}  // namespace

MovedQueries move_queries(const eviction::Rotation& rotation, std::span<const float> lead, const float* q,
                          std::span<const int32_t> positions, int head_dim, int n_heads) {
  const auto d = static_cast<size_t>(head_dim);
  const size_t width = d * static_cast<size_t>(n_heads);
  const auto n_lead = static_cast<int32_t>(lead.size() / width);
  MovedQueries out;
  out.q.assign(lead.begin(), lead.end());
  out.q.insert(out.q.end(), q, q + positions.size() * width);
  for (int32_t i = n_lead; i > 0; --i)
    out.positions.push_back(positions.front() - i);
  out.positions.insert(out.positions.end(), positions.begin(), positions.end());
  for (const int32_t position : out.positions)
    out.moved.push_back(position + kEchoDistance);
  for (size_t j = 0; j < rotation.frequency.size(); ++j) {
    const double angle = double{rotation.frequency[j]} * kEchoDistance;
    const auto c = static_cast<float>(std::cos(angle));
    const auto s = static_cast<float>(std::sin(angle));
    const auto a = static_cast<size_t>(rotation.first(static_cast<int>(j)));
    const auto b = static_cast<size_t>(rotation.second(static_cast<int>(j)));
    for (size_t at = 0; at < out.q.size(); at += d) {
      const float x = out.q[at + a];
      const float y = out.q[at + b];
      out.q[at + a] = x * c - y * s;
      out.q[at + b] = x * s + y * c;
    }
  }
  return out;
}

EchoedRows echo_of(const AttentionKernels& kernels, const KvHeadView& rows, const TileQueries& tile,
                   std::span<const int32_t> positions, RowRange block) {
  const int32_t newest = rows.n_rows > 0 ? rows.position(rows.n_rows - 1) + 1 : 0;
  const int32_t piece_end = std::min((block.begin / kEchoPiece + 1) * kEchoPiece, newest);
  const SomeRows some(rows, {.begin = std::max(piece_end - kEchoPiece, 0), .end = piece_end, .n_sinks = kEchoSinks});
  const size_t n_rows = some.row.size();
  std::vector<int32_t> position(n_rows);
  for (size_t i = 0; i < n_rows; ++i)
    position[i] = some.view.position(static_cast<int32_t>(i));
  const auto from = [&](int32_t p) {
    return static_cast<size_t>(std::ranges::lower_bound(position, p) - position.begin());
  };
  const size_t begin = from(block.begin);
  const size_t end = from(block.end);
  EchoedRows out;
  if (begin == end)
    return out;
  out.first = some.row[begin];
  out.echo.assign(end - begin, 0.0F);
  std::vector<size_t> others;  // rows that share a block with those that count
  for (size_t i = 0; i < n_rows; ++i) {
    if (some.counted[i] == 0)
      others.push_back(i);
  }
  size_t m = 0;  // query and member of the group
  for_weights(kernels, some.view, tile, [&](std::span<const float> a) {
    for (size_t at = 0; at < a.size(); at += n_rows, ++m) {
      const int32_t asked = positions[m / static_cast<size_t>(tile.group)];
      const size_t low = std::max(from(asked - kEchoReach), begin);
      const size_t high = std::min(from(asked + kEchoReach + 1), end);
      if (low >= high)
        continue;
      float counted = 1;
      for (const size_t i : others)
        counted -= a[at + i];
      counted = std::max(counted, kLeastCounted);
      for (size_t i = low; i < high; ++i)
        out.echo[i - begin] = std::max(out.echo[i - begin], std::min(a[at + i] / counted, 1.0F));
    }
  });
  return out;
}

}  // namespace kedge::session
