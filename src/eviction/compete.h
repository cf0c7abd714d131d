// Competition for rows: the one order of rows that selection and allocation share.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace kedge::eviction {

// Unprotected rows that are kept or dropped together: those of one chunk of one head.
struct Unit {
  double key = 0;  // sum of the rows' scores
  int32_t head = 0;
  int32_t begin = 0;     // first row of the chunk that is unprotected
  int32_t n_rows = 0;    // unprotected rows in the chunk
  bool has_nan = false;  // loses to everything
};

// Strict order: higher key, then the earlier row, then the lower head. Total, so that the kept set is unique.
inline bool beats(const Unit& a, const Unit& b) {
  if (a.has_nan != b.has_nan)
    return b.has_nan;
  if (!a.has_nan && a.key != b.key)
    return a.key > b.key;
  if (a.begin != b.begin)
    return a.begin < b.begin;
  return a.head < b.head;
}

// Appends the units of one head; chunks are cut at multiples of `chunk` from row 0. An empty is_protected protects
// nothing.
void append_units(std::span<const float> score, std::span<const uint8_t> is_protected, int chunk, int32_t head,
                  std::vector<Unit>& units);

// Gives every unprotected row the sum of its chunk: rows that are kept or dropped together then rank together as single
// rows do, after compaction too. Not a number: it loses as its chunk does.
void spread_over_chunks(std::span<const uint8_t> is_protected, int chunk, std::span<float> score);

// Reorders `units` so that the first n_units are the best and hold `rows` rows together; the last of these gives only
// rows_of_last (the others all of theirs). Expected linear time. Rows beyond what there is: everything is taken.
struct Taken {
  size_t n_units = 0;
  int32_t rows_of_last = 0;
};
Taken take_best(std::span<Unit> units, int64_t rows);

// The most even counts with lo[i] <= count[i] <= hi[i] and sum min(total, sum of hi); what does not divide goes to
// lower indices. A total below the sum of lo lowers the largest lo first, but leaves 1 where hi allows it (then the sum
// may exceed total).
std::vector<int32_t> level_fill(std::span<const int32_t> lo, std::span<const int32_t> hi, int64_t total);

// max(protected rows, 1), at most the rows there are.
int32_t minimum_rows(std::span<const uint8_t> is_protected, size_t n_rows);

}  // namespace kedge::eviction
