#include "session/echo.h"

#include <algorithm>
#include <cmath>

#include "eviction/window_scorer.h"

namespace kedge::session {
namespace {

constexpr float kLeastCounted = 1e-3F;  // of a query's attention; below that the rest decides nothing

// Of positions below n_tokens, in units of kPastStride.
int32_t past_queries_below(int32_t n_tokens) {
  const int stride = past_stride(n_tokens);
  return n_tokens / stride * (stride / kPastStride);
}

}  // namespace

int past_stride(int32_t position) {
  int stride = kPastStride;
  for (int64_t end = kPastDense; position >= end; end *= 4)
    stride *= 2;
  return stride;
}

int32_t past_queries(int32_t position, int32_t n_tokens) {
  return past_queries_below(n_tokens) - past_queries_below(position);
}

EchoTurn::EchoTurn(const eviction::Rotation& rotation) : is_split_(rotation.is_split) {
  for (const float frequency : rotation.frequency) {
    const double angle = double{frequency} * kEchoDistance;
    cos_.push_back(static_cast<float>(std::cos(angle)));
    sin_.push_back(static_cast<float>(std::sin(angle)));
  }
}

void EchoTurn::apply(float* q) const {
  const auto turn = [this](float* first, float* second, size_t step) {
    for (size_t j = 0; j < cos_.size(); ++j) {
      const float x = first[j * step];
      const float y = second[j * step];
      first[j * step] = x * cos_[j] - y * sin_[j];
      second[j * step] = x * sin_[j] + y * cos_[j];
    }
  };
  if (is_split_)
    turn(q, q + cos_.size(), 1);
  else
    turn(q, q + 1, 2);
}

void MovedQueries::add(const EchoTurn& turn, const TileQueries& queries, int head_dim) {
  for (int t = 0; t < queries.n_queries; ++t) {
    positions.push_back(queries.positions[t]);
    moved.push_back(queries.positions[t] + kEchoDistance);
    for (int g = 0; g < queries.group; ++g) {
      const float* from = queries.q + t * queries.row_stride + g * queries.head_stride;
      q.insert(q.end(), from, from + head_dim);
      turn.apply(q.data() + q.size() - head_dim);
    }
  }
}

TileQueries MovedQueries::tile(int group, int head_dim, float scale) const {
  return {.q = q.data(),
          .row_stride = static_cast<long>(group) * head_dim,
          .head_stride = head_dim,
          .positions = moved.data(),
          .n_queries = static_cast<int>(moved.size()),
          .group = group,
          .scale = scale};
}

EchoedRows echo_of(const AttentionKernels& kernels, const KvHeadView& rows, const MovedQueries& asked, int group,
                   float scale, RowRange block) {
  const int32_t newest = rows.n_rows > 0 ? rows.position(rows.n_rows - 1) + 1 : 0;
  const int32_t piece_end = std::min((block.begin / kEchoPiece + 1) * kEchoPiece, newest);
  const SomeRows some(rows, {.begin = std::max(piece_end - kEchoPiece, 0),
                             .end = piece_end,
                             .n_sinks = kEchoSinks,
                             .every = kEchoSample,
                             .near_begin = block.begin,
                             .near_end = block.end});
  const size_t n_rows = some.row.size();
  std::vector<int32_t> positions(n_rows);
  for (size_t i = 0; i < n_rows; ++i)
    positions[i] = some.view.position(static_cast<int32_t>(i));
  const auto from = [&](int32_t position) {
    return static_cast<size_t>(std::ranges::lower_bound(positions, position) - positions.begin());
  };
  const size_t begin = from(block.begin);
  const size_t end = from(block.end);
  EchoedRows out;
  if (begin == end)
    return out;
  out.first = some.row[begin];
  out.echo.assign(end - begin, 0.0F);
  size_t m = 0;  // query and member of the group
  eviction::for_weights(kernels, some.view, asked.tile(group, rows.head_dim, scale),
                        [&](int, int, std::span<const float> a) {
                          for (size_t at = 0; at < a.size(); at += n_rows, ++m) {
                            const int32_t position = asked.positions[m / static_cast<size_t>(group)];
                            const size_t low = std::max(from(position - kEchoReach), begin);
                            const size_t high = std::min(from(position + kEchoReach + 1), end);
                            if (low >= high)
                              continue;
                            const float counted = std::max(some.sum(a.subspan(at, n_rows)), kLeastCounted);
                            for (size_t i = low; i < high; ++i)
                              out.echo[i - begin] = std::max(out.echo[i - begin], std::min(a[at + i] / counted, 1.0F));
                          }
                        });
  return out;
}

}  // namespace kedge::session
