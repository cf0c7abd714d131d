// Rows moved between blocks a line at a time. A line is what the 16 rows of a block have of one dimension, or of the
// few that lie together (kv_view.h): 16 elements of two bytes (f16 keys, scales) or of four (bf16, q8 and q4 keys).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kv_view.h"

namespace kedge {

// Which elements of the lines of two blocks go where. In place (dst is a, then sources are at or behind their targets)
// or not.
struct LineMove {
  std::byte* dst;
  const std::byte* a;
  const std::byte* b;
  uint8_t from[kBlockRows];  // slot i gets element from[i] of a's line, from[i] - 16 of b's
  uint32_t written;          // bit i: slot i is written
};

struct LineMovers {
  const char* name;
  void (*halves)(const LineMove& move, int n_lines);  // 2-byte elements
  void (*words)(const LineMove& move, int n_lines);   // 4-byte elements
};

// The fastest that this CPU runs, or the one called `name` ("plain", "avx2", "avx512"); nullptr if it cannot.
const LineMovers& best_line_movers();
const LineMovers* line_movers(const char* name);

// V of one row, as copy_row() moves it.
void copy_v_row(std::byte* dst, int dst_slot, const std::byte* src, int src_slot, int head_dim, RowTypes type);

}  // namespace kedge
