#include "eviction/exact_term.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "eviction/compete.h"
#include "eviction/window_scorer.h"

namespace kedge::eviction {
namespace {

constexpr float kLeastRest = 1e-6F;  // of 1 - a: a row that has all the attention is worth a lot, not infinity

// Rows of one unit: the unprotected ones from `begin` to the end of its chunk.
std::vector<int32_t> rows_of(const Unit& unit, std::span<const uint8_t> is_protected) {
  std::vector<int32_t> rows;
  for (int32_t i = unit.begin; static_cast<int32_t>(rows.size()) < unit.n_rows; ++i) {
    if (is_protected.empty() || is_protected[static_cast<size_t>(i)] == 0)
      rows.push_back(i);
  }
  return rows;
}

// Units [first, last) of the ranking are those near the threshold.
struct Near {
  size_t first = 0;
  size_t last = 0;
};
Near near_threshold(std::span<const Unit> ranked, int64_t rows_free, int64_t margin) {
  Near near{.first = ranked.size(), .last = ranked.size()};
  int64_t held = 0;
  for (size_t u = 0; u < ranked.size(); ++u) {
    if (held + ranked[u].n_rows > rows_free - margin && near.first == ranked.size())
      near.first = u;
    if (held >= rows_free + margin) {
      near.last = u;
      break;
    }
    held += ranked[u].n_rows;
  }
  return near;
}

}  // namespace

void exact_terms(const HeadInput& in, std::span<const int32_t> rows, std::span<float> term) {
  std::fill(term.begin(), term.end(), 0.0F);
  if (in.n_window == 0 || rows.empty())
    return;
  const auto dim = static_cast<size_t>(in.rows.head_dim);
  const auto n_rows = static_cast<size_t>(in.rows.n_rows);
  std::vector<float> v(rows.size() * dim);
  for (size_t j = 0; j < rows.size(); ++j)
    read_rows(in.rows, rows[j], rows[j] + 1, nullptr, &v[j * dim]);
  for_weight_batches(in, 0, in.n_window, [&](int t, int n, std::span<float> a) {
    const float* y = in.y + static_cast<size_t>(t) * static_cast<size_t>(in.group) * dim;
    for (size_t m = 0; m < static_cast<size_t>(n) * static_cast<size_t>(in.group); ++m) {
      for (size_t j = 0; j < rows.size(); ++j) {
        const float weight = a[m * n_rows + static_cast<size_t>(rows[j])];
        float distance = 0;
        for (size_t i = 0; i < dim; ++i) {
          const float d = v[j * dim + i] - y[m * dim + i];
          distance += d * d;
        }
        const float odds = weight / std::max(1 - weight, kLeastRest);
        term[j] += odds * odds * distance;
      }
    }
  });
}

void refine_margin(const HeadInput& in, const Margin& margin, std::span<float> score) {
  const auto& flags = in.is_protected;
  const int64_t n_protected = std::count_if(flags.begin(), flags.end(), [](uint8_t flag) { return flag != 0; });
  const int64_t rows_free = margin.k - n_protected;
  const auto width = static_cast<int64_t>(std::ceil(margin.share * static_cast<double>(margin.k)));
  if (rows_free <= 0 || width <= 0 || in.n_window == 0)
    return;
  std::vector<Unit> units;
  append_units(score, flags, margin.chunk, 0, units);
  std::sort(units.begin(), units.end(), beats);
  const Near near = near_threshold(units, rows_free, width);
  if (near.last - near.first < 2)
    return;

  const std::span<Unit> ranked = std::span(units).subspan(near.first, near.last - near.first);
  std::vector<int32_t> rows;
  for (const Unit& unit : ranked) {
    const std::vector<int32_t> some = rows_of(unit, flags);
    rows.insert(rows.end(), some.begin(), some.end());
  }
  std::sort(rows.begin(), rows.end());
  std::vector<float> term(rows.size());
  exact_terms(in, rows, term);
  // Each unit, by its exact term, takes the score that the ranking has at its new place.
  std::vector<double> keys;
  std::vector<Unit> again;
  for (const Unit& unit : ranked) {
    keys.push_back(unit.has_nan ? -std::numeric_limits<double>::infinity() : unit.key);
    Unit exact = unit;
    exact.key = 0;
    exact.has_nan = false;
    for (const int32_t row : rows_of(unit, flags))
      exact.key += term[static_cast<size_t>(std::lower_bound(rows.begin(), rows.end(), row) - rows.begin())];
    again.push_back(exact);
  }
  std::sort(again.begin(), again.end(), beats);
  for (size_t u = 0; u < again.size(); ++u) {
    for (const int32_t row : rows_of(again[u], flags))
      score[static_cast<size_t>(row)] = static_cast<float>(keys[u] / again[u].n_rows);
  }
}

}  // namespace kedge::eviction
