// Figures over repetitions.
#pragma once

#include <span>

#include "cli/kl.h"

namespace kedge::bench {

using cli::mean;                                // 0 of none
double stddev(std::span<const double> values);  // of a sample (n - 1); 0 of fewer than two
double median(std::span<const double> values);  // of an even number: the mean of the middle two; 0 of none
double smallest(std::span<const double> values);
double largest(std::span<const double> values);

}  // namespace kedge::bench
