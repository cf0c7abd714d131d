// Which queries and which rows of a head are taken together where histories are made of softmax weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/attention.h"
#include "kernels/kv_view.h"

namespace kedge::session {

// Sums run over queries in blocks of positions [64 i, 64 i + 64), so that the size of a graph changes no bit.
inline constexpr int kSumQueries = 64;

struct Range {
  size_t begin = 0;
  size_t end = 0;
};
// Positions (ascending) cut at multiples of kSumQueries.
std::vector<Range> blocks_of(std::span<const int32_t> positions);
// Neighbouring blocks taken together, of [blocks]: up to 16 queries that read the keys once, or one block.
std::vector<Range> tiles_of(std::span<const Range> blocks);

// Rows [begin, end) by position, those of the sinks, and those from `probe` on.
struct SomePositions {
  int32_t begin = 0;
  int32_t end = 0;
  int32_t n_sinks = 0;
  int32_t probe = INT32_MAX;
  // > 1: of the head's blocks (of its tail's) only each `every`-th is there and stands for the others too, but for the
  // blocks of [near_begin, near_end), which all stand for themselves.
  int32_t every = 1;
  int32_t near_begin = 0;
  int32_t near_end = 0;
};

// The blocks of a head that hold these rows, as rows of their own.
struct SomeRows {
  KvHeadView view;
  std::vector<uint32_t> ids, tail_ids;
  std::vector<int32_t> row;   // of the head, for each row of `view`
  std::vector<float> weight;  // how many of those it stands for; 0: none (blocks have others at their ends)
  int32_t first = 0;          // the head's first row at or behind `begin`

  SomeRows(const KvHeadView& head, const SomePositions& which);
  SomeRows(const SomeRows&) = delete;
  SomeRows& operator=(const SomeRows&) = delete;

  // What one query's softmax weights on the rows of `view` come to over the rows that these stand for.
  float sum(std::span<const float> a) const;
};

}  // namespace kedge::session
