#include "eval/match_quality.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cli/kl.h"
#include "eval/random.h"
#include "eval/statistics.h"

namespace kedge::eval {
namespace {

using Indices = std::vector<size_t>;

double mean_at(const std::vector<double>& values, const Indices& indices) {
  double sum = 0;
  for (const size_t i : indices)
    sum += values[i];
  return indices.empty() ? 0 : sum / static_cast<double>(indices.size());
}

Indices all_of(const std::vector<double>& values) {
  Indices indices(values.size());
  std::iota(indices.begin(), indices.end(), size_t{0});
  return indices;
}

// The share of the full score, or the KLD.
double quality_at(const Tried& tried, const std::vector<double>& full, const MatchTarget& target, const Indices& at) {
  const double mean = mean_at(tried.quality, at);
  if (target.kld > 0)
    return mean;
  const double of = mean_at(full, at);
  return of > 0 ? mean / of : 1;
}

bool passes(const Tried& tried, const std::vector<double>& full, const MatchTarget& target, const Indices& at) {
  const double quality = quality_at(tried, full, target, at);
  return target.kld > 0 ? quality <= target.kld : quality >= target.quality - 1e-12;
}

// Smallest share that passes with all larger ones; 1 where none does.
double smallest_passing(const std::vector<Tried>& tried, const std::vector<double>& full, const MatchTarget& target,
                        const Indices& at) {
  double largest_failing = 0;
  for (const Tried& one : tried) {
    if (!passes(one, full, target, at))
      largest_failing = std::max(largest_failing, one.share);
  }
  double smallest = 1;
  for (const Tried& one : tried) {
    if (one.share > largest_failing)
      smallest = std::min(smallest, one.share);
  }
  return smallest;
}

}  // namespace

double rounded_share(double share) { return std::max(1.0, std::round(share * 1000)) / 1000; }

double next_share(const std::vector<Tried>& tried, const std::vector<double>& full, const MatchTarget& target) {
  const Indices everything = all_of(full);
  double fails = 0;
  for (const Tried& one : tried) {
    if (!passes(one, full, target, everything))
      fails = std::max(fails, one.share);
  }
  const double smallest = smallest_passing(tried, full, target, everything);
  if (fails == 0)
    fails = kLeastShare / kMatchStep;
  if (smallest / fails <= kMatchStep)
    return 0;
  const double share = rounded_share(std::max(kLeastShare, std::sqrt(smallest * fails)));
  return std::ranges::any_of(tried, [share](const Tried& one) { return one.share == share; }) ? 0 : share;
}

Match summarize(const std::vector<Tried>& tried, const std::vector<double>& full, const MatchTarget& target,
                uint64_t seed) {
  const Indices everything = all_of(full);
  Match match{.share = smallest_passing(tried, full, target, everything)};
  const auto found = std::ranges::find_if(tried, [&match](const Tried& one) { return one.share == match.share; });
  const auto quality_of = [&](const Indices& at) {
    return found == tried.end() ? (target.kld > 0 ? 0.0 : 1.0) : quality_at(*found, full, target, at);
  };
  match.quality = quality_of(everything);
  Random random(seed, "bootstrap");
  std::vector<double> shares;
  std::vector<double> qualities;
  Indices drawn(full.size());
  for (int i = 0; i < kResamples; ++i) {
    for (size_t& index : drawn)
      index = static_cast<size_t>(random.below(static_cast<int64_t>(full.size())));
    shares.push_back(smallest_passing(tried, full, target, drawn));
    qualities.push_back(quality_of(drawn));
  }
  match.share_lo = cli::quantile(shares, 0.025);
  match.share_hi = cli::quantile(shares, 0.975);
  match.quality_lo = cli::quantile(qualities, 0.025);
  match.quality_hi = cli::quantile(qualities, 0.975);
  return match;
}

}  // namespace kedge::eval
