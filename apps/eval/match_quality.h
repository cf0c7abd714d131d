// The smallest budget at which a policy keeps a quality: bisection over the share of rows kept, on the samples of the
// run. It takes quality to grow with the budget; where it does not, the largest failing budget found decides.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "eval/records.h"
#include "kedge/error.h"

namespace kedge::eval {

struct MatchTarget {
  double quality = 0;  // share of the full cache's mean score to keep; 0: none asked
  double kld = 0;      // or: mean KLD at most this; 0: none asked
};

// What one budget gave, sample by sample (the same samples in the same order for every budget).
struct Tried {
  double share = 1;             // of rows kept, 0..1
  std::vector<double> quality;  // scores, or KLDs
};

// Ends when two neighbours that pass and fail are within this factor.
inline constexpr double kMatchStep = 1.05;
inline constexpr double kLeastShare = 0.01;

// A share in tenths of a percent, at least 0.1 %.
double rounded_share(double share);

// Next share to try between the largest that fails and the smallest that passes, or 0: done.
double next_share(const std::vector<Tried>& tried, const std::vector<double>& full, const MatchTarget& target);

struct Match {
  double share = 1;     // smallest that passes
  double share_lo = 1;  // 95 % interval over resamples of the samples, among the budgets tried
  double share_hi = 1;
  double quality = 0;  // at `share`: of the full score, or the mean KLD
  double quality_lo = 0;
  double quality_hi = 0;
};
Match summarize(const std::vector<Tried>& tried, const std::vector<double>& full, const MatchTarget& target,
                uint64_t seed);

}  // namespace kedge::eval
