#include "eviction/compete.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace kedge::eviction {

void append_units(std::span<const float> score, std::span<const uint8_t> is_protected, int chunk, int32_t head,
                  std::vector<Unit>& units) {
  const size_t step = static_cast<size_t>(std::max(chunk, 1));
  for (size_t begin = 0; begin < score.size(); begin += step) {
    Unit unit{.head = head};
    double sum = 0;  // -inf + inf is not a number either
    for (size_t i = begin; i < std::min(begin + step, score.size()); ++i) {
      if (!is_protected.empty() && is_protected[i] != 0)
        continue;
      if (unit.n_rows++ == 0)
        unit.begin = static_cast<int32_t>(i);
      sum += score[i];
    }
    if (unit.n_rows == 0)
      continue;
    unit.has_nan = std::isnan(sum);
    unit.key = unit.has_nan ? 0 : sum;
    units.push_back(unit);
  }
}

void spread_over_chunks(std::span<const uint8_t> is_protected, int chunk, std::span<float> score) {
  if (chunk <= 1)
    return;
  std::vector<Unit> units;
  append_units(score, is_protected, chunk, 0, units);
  for (const Unit& unit : units) {
    const float sum = unit.has_nan ? std::nanf("") : static_cast<float>(unit.key);
    int32_t left = unit.n_rows;
    for (size_t i = static_cast<size_t>(unit.begin); left > 0; ++i) {
      if (!is_protected.empty() && is_protected[i] != 0)
        continue;
      score[i] = sum;
      --left;
    }
  }
}

Taken take_best(std::span<Unit> units, int64_t rows) {
  if (rows <= 0 || units.empty())
    return {};
  int64_t there_are = 0;
  for (const Unit& unit : units)
    there_are += unit.n_rows;
  if (rows >= there_are)
    return {.n_units = units.size(), .rows_of_last = units.back().n_rows};
  size_t lo = 0;  // units before lo are taken in full; the one that is cut is in [lo, hi)
  size_t hi = units.size();
  int64_t need = rows;  // of [lo, hi)
  while (hi - lo > 1) {
    const size_t middle = lo + (hi - lo) / 2;
    std::nth_element(units.begin() + lo, units.begin() + middle, units.begin() + hi, beats);
    int64_t held = 0;
    for (size_t i = lo; i < middle; ++i)
      held += units[i].n_rows;
    if (held >= need) {
      hi = middle;
    } else {
      need -= held;
      lo = middle;
    }
  }
  return {.n_units = lo + 1, .rows_of_last = static_cast<int32_t>(need)};
}

std::vector<int32_t> level_fill(std::span<const int32_t> lo, std::span<const int32_t> hi, int64_t total) {
  const size_t n = hi.size();
  if (std::accumulate(lo.begin(), lo.end(), int64_t{0}) > total) {
    std::vector<int32_t> ones(n);
    for (size_t i = 0; i < n; ++i)
      ones[i] = std::min(lo[i], 1);
    if (std::accumulate(ones.begin(), ones.end(), int64_t{0}) >= total)
      return ones;
    return level_fill(ones, lo, total);
  }
  const auto at_level = [&](int64_t level, size_t i) {
    return static_cast<int32_t>(std::clamp<int64_t>(level, lo[i], std::max(lo[i], hi[i])));
  };
  const auto sum_at = [&](int64_t level) {
    int64_t sum = 0;
    for (size_t i = 0; i < n; ++i)
      sum += at_level(level, i);
    return sum;
  };
  int64_t level = 0;  // the highest whose sum fits
  int64_t above = int64_t{1} << 31;
  while (above - level > 1) {
    const int64_t middle = level + (above - level) / 2;
    (sum_at(middle) <= total ? level : above) = middle;
  }
  std::vector<int32_t> counts(n);
  int64_t left = total - sum_at(level);
  for (size_t i = 0; i < n; ++i) {
    counts[i] = at_level(level, i);
    if (left > 0 && at_level(level + 1, i) > counts[i]) {
      ++counts[i];
      --left;
    }
  }
  return counts;
}

int32_t minimum_rows(std::span<const uint8_t> is_protected, size_t n_rows) {
  const auto n = std::count_if(is_protected.begin(), is_protected.end(), [](uint8_t flag) { return flag != 0; });
  return static_cast<int32_t>(std::min<int64_t>(std::max<int64_t>(n, 1), static_cast<int64_t>(n_rows)));
}

}  // namespace kedge::eviction
