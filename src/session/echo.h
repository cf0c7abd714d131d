// Echo: what the text's own queries look at when they ask once more, from behind the text.
//
// KVzip (arXiv 2505.23416) lets the model repeat a text and keeps what the repetition looks at, which costs one to two
// more readings. Its queries resemble those of the first reading: to write token i a second time the model stands at
// token i - 1 once more. So the queries of the first reading are turned by RoPE to positions behind the text, where
// local heads are silent, and asked what they think of their own neighbours, rows that follow them included:
//   echo[i] = max over queries t in [i - 2, i + 2] and the group's heads g of  a'[t,g,i]
//   a'[t,g,.] = softmax over the sinks and the piece of 512 rows around i of  scale * (R(1024) q[t,g]) . k
// Nothing is read twice: it costs the products of every query with one piece. Each number of it is measured
// (docs/echo.md).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "eviction/policy.h"
#include "session/query_weights.h"

namespace kedge::session {

inline constexpr int kEchoReach = 2;        // queries on each side of a row
inline constexpr int kEchoPiece = 512;      // rows that share a softmax
inline constexpr int kEchoDistance = 1024;  // positions that queries are moved by
inline constexpr int kPastStride = 16;      // HeadInput::past looks at the queries of positions 15, 31, ...
inline constexpr int32_t kEchoSinks = 4;    // positions

// How many of the sampled queries could see a row, when the sequence has n_tokens.
inline int32_t past_queries(int32_t position, int32_t n_tokens) {
  return n_tokens / kPastStride - position / kPastStride;
}

// Queries of consecutive positions, moved. Some of the first may be of an earlier graph.
struct MovedQueries {
  std::vector<float> q;            // f32 [n][n_heads * head_dim]
  std::vector<int32_t> positions;  // i32 [n], where they were
  std::vector<int32_t> moved;      // i32 [n], where they ask from
};
// q f32 [positions][n_heads][head_dim]; `lead` f32, the queries before them, any number of at most kEchoReach.
MovedQueries move_queries(const eviction::Rotation& rotation, std::span<const float> lead, const float* q,
                          std::span<const int32_t> positions, int head_dim, int n_heads);

// Rows of a block of queries that have new numbers: echo[i] of the head's row first + i.
struct EchoedRows {
  int32_t first = 0;
  std::vector<float> echo;
};
// Of the rows at positions [begin, end), within one piece. `tile`: the moved queries of the head's group from
// begin - kEchoReach to end, as far as they are there; `positions`: where they were.
EchoedRows echo_of(const AttentionKernels& kernels, const KvHeadView& rows, const TileQueries& tile,
                   std::span<const int32_t> positions, RowRange block);

}  // namespace kedge::session
