#include "eviction/select.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "eviction/compete.h"

namespace kedge::eviction {
namespace {

bool is_kept_first(std::span<const uint8_t> is_protected, size_t i) {
  return !is_protected.empty() && is_protected[i] != 0;
}

// More protected rows than k: the newest pinned ones, then the sinks (the run from row 0, if it ends before an
// unprotected row), then the newest.
std::vector<int32_t> select_protected(std::span<const uint8_t> is_protected, size_t k) {
  const size_t n = is_protected.size();
  size_t n_sinks = 0;
  while (n_sinks < n && is_protected[n_sinks] != 0)
    ++n_sinks;
  if (n_sinks == n)
    n_sinks = 0;  // all protected: nothing tells sinks from recent rows
  std::vector<int32_t> keep;
  for (size_t i = n; i-- > 0 && keep.size() < k;) {
    if (is_protected[i] == kPinned)
      keep.push_back(static_cast<int32_t>(i));
  }
  for (size_t i = 0; i < n_sinks && keep.size() < k; ++i) {
    if (is_protected[i] != kPinned)
      keep.push_back(static_cast<int32_t>(i));
  }
  for (size_t i = n; i-- > n_sinks && keep.size() < k;) {
    if (is_protected[i] != 0 && is_protected[i] != kPinned)
      keep.push_back(static_cast<int32_t>(i));
  }
  std::sort(keep.begin(), keep.end());
  return keep;
}

// Marks all rows of a chunk.
void keep_all_of(const Unit& unit, std::span<const uint8_t> is_protected, std::span<uint8_t> stays) {
  int32_t left = unit.n_rows;
  for (size_t i = static_cast<size_t>(unit.begin); left > 0; ++i) {
    if (is_kept_first(is_protected, i))
      continue;
    stays[i] = 1;
    --left;
  }
}

// Marks the n rows of a chunk with the best scores of their own.
void keep_best_of(const Unit& unit, int32_t n, std::span<const float> score, std::span<const uint8_t> is_protected,
                  std::span<uint8_t> stays) {
  std::vector<size_t> rows;
  for (size_t i = static_cast<size_t>(unit.begin); rows.size() < static_cast<size_t>(unit.n_rows); ++i) {
    if (!is_kept_first(is_protected, i))
      rows.push_back(i);
  }
  std::stable_sort(rows.begin(), rows.end(), [&](size_t a, size_t b) {
    if (std::isnan(score[a]) || std::isnan(score[b]))
      return !std::isnan(score[a]) && std::isnan(score[b]);
    return score[a] > score[b];
  });
  rows.resize(static_cast<size_t>(std::min(n, unit.n_rows)));
  for (const size_t i : rows)
    stays[i] = 1;
}

}  // namespace

void mark_protected(const KvHeadView& rows, int n_sinks, int n_recent, std::span<uint8_t> is_protected) {
  check(is_protected.size() == static_cast<size_t>(rows.n_rows), "one protection flag per row");
  std::fill(is_protected.begin(), is_protected.end(), uint8_t{0});
  for (int32_t row = 0; row < rows.n_rows && rows.position(row) < n_sinks; ++row)
    is_protected[row] = 1;
  const int32_t first_recent = rows.n_rows - std::clamp(n_recent, 0, rows.n_rows);
  std::fill(is_protected.begin() + first_recent, is_protected.end(), uint8_t{1});
}

void mark_pinned(const KvHeadView& rows, std::span<const uint8_t> pinned, std::span<uint8_t> is_protected) {
  check(is_protected.size() == static_cast<size_t>(rows.n_rows), "one protection flag per row");
  for (int32_t row = 0; !pinned.empty() && row < rows.n_rows; ++row) {
    const auto position = static_cast<size_t>(rows.position(row));
    if (position < pinned.size() && pinned[position] != 0)
      is_protected[row] = kPinned;
  }
}

std::vector<int32_t> select(std::span<const float> score, std::span<const uint8_t> is_protected, int64_t k, int chunk) {
  const size_t n = score.size();
  check(is_protected.empty() || is_protected.size() == n, "one protection flag per row");
  k = std::clamp<int64_t>(k, 0, static_cast<int64_t>(n));
  const int64_t n_protected = is_protected.empty() ? 0 : n - std::count(is_protected.begin(), is_protected.end(), 0);
  if (k < n_protected)
    return select_protected(is_protected, static_cast<size_t>(k));

  std::vector<uint8_t> stays(n, 0);
  for (size_t i = 0; i < n; ++i)
    stays[i] = is_kept_first(is_protected, i) ? 1 : 0;
  std::vector<Unit> units;
  units.reserve(n / static_cast<size_t>(std::max(chunk, 1)) + 2);
  append_units(score, is_protected, chunk, 0, units);
  const Taken taken = take_best(units, k - n_protected);
  for (size_t u = 0; u < taken.n_units; ++u) {
    if (u + 1 == taken.n_units && taken.rows_of_last < units[u].n_rows)
      keep_best_of(units[u], taken.rows_of_last, score, is_protected, stays);
    else
      keep_all_of(units[u], is_protected, stays);
  }
  std::vector<int32_t> keep;
  keep.reserve(static_cast<size_t>(k));
  for (size_t i = 0; i < n; ++i) {
    if (stays[i] != 0)
      keep.push_back(static_cast<int32_t>(i));
  }
  return keep;
}

}  // namespace kedge::eviction
