// What a comparison of two policies is worth, and which points no other one beats.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cli/kl.h"

namespace kedge::report {

struct PairedDifference {
  int64_t n = 0;             // pairs
  double mean = 0;           // of a - b
  std::optional<double> se;  // standard error of the mean; nothing for fewer than two pairs
  double p = 1;              // two-sided, see below
};

// a[i] and b[i] are of the same sample. p is that of the paired randomisation test (Fisher, The Design of Experiments,
// 1935, section 21): the share of all ways to flip the signs of the differences whose mean is at least as far from 0.
// Exact up to 16 pairs, else 20,000 draws (SplitMix64 of `seed`), the observed one counted. It assumes no distribution:
// scores that are mostly 0 or 1 have none that a t-test would fit, and a bootstrap of few equal differences never
// crosses 0. Fewer than 6 pairs can never reach p < 0.05.
PairedDifference paired_difference(std::span<const double> a, std::span<const double> b, uint64_t seed);

constexpr double kSignificant = 0.05;

struct CostValue {
  double cost = 0;   // less is better
  double value = 0;  // more is better
};

// Indices of the points that no other one beats (costs no more and is worth no less, one of the two strictly), by
// growing cost; of equal points the first.
std::vector<size_t> pareto_front(std::span<const CostValue> points);

using cli::mean;

}  // namespace kedge::report
