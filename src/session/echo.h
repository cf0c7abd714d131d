// Echo: what the text's own queries look at when they ask once more, from behind the text.
//
// KVzip (arXiv 2505.23416) lets the model repeat a text and keeps what the repetition looks at, which costs one to two
// more readings. Its queries resemble those of the first reading: to write token i a second time the model stands at
// token i - 1 once more. So the queries of the first reading are turned by RoPE to positions behind the text, where
// local heads are silent, and asked what they think of their own neighbours, rows that follow them included:
//   echo[i] = max over queries t in [i - 2, i + 2] and the group's heads g of  a'[t,g,i]
//   a'[t,g,.] = softmax over the sinks and the piece of 512 rows around i of  scale * (R(1024) q[t,g]) . k
// Of the piece's other blocks of 16 rows every second one is looked at, for itself and the next. Nothing is read twice:
// it costs the products of every query with half a piece. Each number of it is measured (docs/echo.md).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "eviction/policy.h"
#include "session/query_weights.h"

namespace kedge::session {

inline constexpr int kEchoReach = 2;        // queries on each side of a row
inline constexpr int kEchoPiece = 512;      // rows that share a softmax
inline constexpr int kEchoSample = 2;       // of its blocks every second one is looked at
inline constexpr int kEchoDistance = 1024;  // positions that queries are moved by
inline constexpr int32_t kEchoSinks = 4;    // positions

// HeadInput::past looks at the queries of positions 15, 31, ... up to 2,048, at every 32nd from there to 8,192, and so
// on: half as many each time the text is four times as long, because each looks at all rows. A query stands for those
// between it and the one before.
inline constexpr int kPastStride = 16;
inline constexpr int32_t kPastDense = 2048;  // positions
int past_stride(int32_t position);
inline bool is_past_query(int32_t position) { return (position + 1) % past_stride(position) == 0; }
// Queries, in units of kPastStride, that those stand for that could see a row, when the sequence has n_tokens.
int32_t past_queries(int32_t position, int32_t n_tokens);

// RoPE over kEchoDistance more positions: the same for every query of a model.
class EchoTurn {
 public:
  EchoTurn() = default;
  explicit EchoTurn(const eviction::Rotation& rotation);
  void apply(float* q) const;  // f32 [head_dim]

 private:
  std::vector<float> cos_, sin_;  // f32 [n_pairs]
  bool is_split_ = false;         // as in Rotation
};

// Queries of a kv head's group that ask from behind the text, in order of position.
struct MovedQueries {
  std::vector<float> q;            // f32 [n][group][head_dim]
  std::vector<int32_t> positions;  // i32 [n], where they were
  std::vector<int32_t> moved;      // i32 [n], where they ask from

  void add(const EchoTurn& turn, const TileQueries& queries, int head_dim);
  TileQueries tile(int group, int head_dim, float scale) const;
};

// Rows of a block of queries that have new numbers: echo[i] of the head's row first + i.
struct EchoedRows {
  int32_t first = 0;
  std::vector<float> echo;
};
// Of the rows at positions [begin, end), within one piece, asked by the queries of positions begin - kEchoReach to end,
// as far as they are there.
EchoedRows echo_of(const AttentionKernels& kernels, const KvHeadView& rows, const MovedQueries& asked, int group,
                   float scale, RowRange block);

}  // namespace kedge::session
