#include "eviction/divide_rows.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "eviction/compete.h"
#include "eviction/options.h"

namespace kedge::eviction {
namespace {

constexpr double kLeastWeight = 1e-9;  // of the largest
constexpr int kHalvings = 100;         // of the search for x: to the last bit

int64_t sum_of(std::span<const int32_t> values) { return std::accumulate(values.begin(), values.end(), int64_t{0}); }

// What head h still has to offer beyond the `sure` rows it gets anyway: these are its protected rows and its best
// others.
void append_rivals(const LayerScores& layer, size_t h, int32_t sure, std::vector<Unit>& rivals) {
  const auto& flags = layer.is_protected[h];
  const auto n_protected = std::count_if(flags.begin(), flags.end(), [](uint8_t flag) { return flag != 0; });
  if (sure <= n_protected)  // all of them
    return append_units(layer.score[h], flags, layer.chunk, static_cast<int32_t>(h), rivals);
  std::vector<Unit> units;
  append_units(layer.score[h], flags, layer.chunk, static_cast<int32_t>(h), units);
  const Taken taken = take_best(units, sure - n_protected);
  size_t first = taken.n_units;
  if (taken.n_units > 0 && taken.rows_of_last < units[first - 1].n_rows) {
    units[--first].n_rows -= taken.rows_of_last;  // the rest of a chunk that is cut competes with the chunk's score
  }
  rivals.insert(rivals.end(), units.begin() + static_cast<int64_t>(first), units.end());
}

std::vector<double> usable_weights(std::span<const Part> parts) {
  double largest = 0;
  for (const Part& part : parts) {
    if (std::isfinite(part.weight))
      largest = std::max(largest, part.weight);
  }
  std::vector<double> weights;
  for (const Part& part : parts) {
    const double weight = std::isfinite(part.weight) && largest > 0 ? part.weight / largest : 0;
    weights.push_back(largest > 0 ? std::max(weight, kLeastWeight) : 1.0);
  }
  return weights;
}

int32_t count_at(double x, double weight, const Part& part) {
  return static_cast<int32_t>(std::clamp(std::floor(x * weight + 0.5), double(part.lo), double(part.hi)));
}

}  // namespace

std::vector<int32_t> divide_evenly(const LayerScores& layer, int64_t total) {
  std::vector<int32_t> lo;
  std::vector<int32_t> hi;
  for (size_t h = 0; h < layer.score.size(); ++h) {
    lo.push_back(minimum_rows(layer.is_protected[h], layer.score[h].size()));
    hi.push_back(static_cast<int32_t>(layer.score[h].size()));
  }
  return level_fill(lo, hi, total);
}

std::vector<int32_t> divide_by_scores(const LayerScores& layer, int64_t total, double floor) {
  const size_t n_heads = layer.score.size();
  if (n_heads == 0)
    return {};
  std::vector<int32_t> minimum(n_heads);  // protected rows, at least 1
  std::vector<int32_t> sure(n_heads);     // that and the floor
  const double share = floor * static_cast<double>(std::max<int64_t>(total, 0)) / static_cast<double>(n_heads);
  for (size_t h = 0; h < n_heads; ++h) {
    const auto n_rows = static_cast<int32_t>(layer.score[h].size());
    minimum[h] = minimum_rows(layer.is_protected[h], layer.score[h].size());
    sure[h] = std::max(minimum[h], static_cast<int32_t>(std::min<double>(share, n_rows)));
  }
  std::vector<int32_t> rows =
      level_fill(minimum, sure, total);  // `sure`, or less where the minima leave no room for it
  const int64_t left = total - sum_of(rows);
  if (left <= 0)
    return rows;

  std::vector<Unit> rivals;
  for (size_t h = 0; h < n_heads; ++h)
    append_rivals(layer, h, rows[h], rivals);
  const Taken taken = take_best(rivals, left);
  for (size_t u = 0; u < taken.n_units; ++u) {
    const bool is_last = u + 1 == taken.n_units;
    rows[static_cast<size_t>(rivals[u].head)] += is_last ? taken.rows_of_last : rivals[u].n_rows;
  }
  return rows;
}

std::vector<int32_t> divide_by_weight(std::span<const Part> parts, int64_t total) {
  const size_t n = parts.size();
  std::vector<int32_t> lo;
  std::vector<int32_t> hi;
  for (const Part& part : parts) {
    lo.push_back(part.lo);
    hi.push_back(std::max(part.lo, part.hi));
  }
  if (sum_of(lo) >= total)
    return level_fill(lo, hi, total);
  if (sum_of(hi) <= total)
    return hi;
  const std::vector<double> weights = usable_weights(parts);
  const auto counts_at = [&](double x) {
    std::vector<int32_t> counts(n);
    for (size_t i = 0; i < n; ++i)
      counts[i] = count_at(x, weights[i], {.lo = lo[i], .hi = hi[i]});
    return counts;
  };
  double fits = 0;  // the largest x whose counts fit
  double beyond = 0;
  for (size_t i = 0; i < n; ++i)
    beyond = std::max(beyond, (hi[i] + 1.0) / weights[i]);
  for (int step = 0; step < kHalvings; ++step) {
    const double middle = fits + (beyond - fits) / 2;
    (sum_of(counts_at(middle)) <= total ? fits : beyond) = middle;
  }
  std::vector<int32_t> counts = counts_at(fits);
  for (int64_t left = total - sum_of(counts); left > 0; --left) {
    size_t next = n;
    const auto step_of = [&](size_t i) { return (counts[i] + 0.5) / weights[i]; };
    for (size_t i = 0; i < n; ++i) {
      if (counts[i] < hi[i] && (next == n || step_of(i) < step_of(next)))
        next = i;
    }
    check(next < n, "somebody has room");
    ++counts[next];
  }
  return counts;
}

Part part_of(const LayerScores& layer) {
  Part part;
  for (size_t h = 0; h < layer.score.size(); ++h) {
    part.lo += minimum_rows(layer.is_protected[h], layer.score[h].size());
    part.hi += static_cast<int32_t>(layer.score[h].size());
  }
  return part;
}

std::vector<int32_t> divide_by_weight(const LayerScores& layer, std::span<const double> weight, int64_t total) {
  check(weight.empty() || weight.size() == layer.score.size(), "one weight per head");
  std::vector<Part> parts;
  for (size_t h = 0; h < layer.score.size(); ++h) {
    parts.push_back({.weight = weight.empty() ? 1 : weight[h],
                     .lo = minimum_rows(layer.is_protected[h], layer.score[h].size()),
                     .hi = static_cast<int32_t>(layer.score[h].size())});
  }
  return divide_by_weight(parts, total);
}

OptionInfo head_rule_option(HeadRule fallback) {
  std::vector<std::string> choices = {"uniform", "pooled"};
  if (fallback == HeadRule::pooled)
    std::swap(choices[0], choices[1]);
  return choice_option("heads", choices, "how a layer's rows go to its heads: the same for each, or one top-k");
}

HeadRule head_rule(const OptionValues& options) {
  return options.choices.at("heads") == "pooled" ? HeadRule::pooled : HeadRule::uniform;
}

std::vector<int32_t> divide_layer(HeadRule rule, const LayerScores& layer, int64_t total) {
  return rule == HeadRule::pooled ? divide_by_scores(layer, total, 0) : divide_evenly(layer, total);
}

LayerScores as_one_layer(std::span<const LayerScores> layers) {
  LayerScores all;
  for (const LayerScores& layer : layers) {
    all.chunk = layer.chunk;
    all.n_layers = layer.n_layers;
    all.score.insert(all.score.end(), layer.score.begin(), layer.score.end());
    all.is_protected.insert(all.is_protected.end(), layer.is_protected.begin(), layer.is_protected.end());
    all.measured.insert(all.measured.end(), layer.measured.begin(), layer.measured.end());
  }
  if (all.measured.size() != all.score.size())
    all.measured.clear();
  return all;
}

std::vector<std::vector<int32_t>> split_by_layer(std::span<const LayerScores> layers, std::span<const int32_t> rows) {
  std::vector<std::vector<int32_t>> out;
  size_t begin = 0;
  for (const LayerScores& layer : layers) {
    const auto part = rows.subspan(begin, layer.score.size());
    out.emplace_back(part.begin(), part.end());
    begin += layer.score.size();
  }
  return out;
}

}  // namespace kedge::eviction
