// What the loss of one row costs exactly, and the second pass that ranks the rows near a threshold by it.
#pragma once

#include <cstdint>
#include <span>

#include "eviction/policy.h"

namespace kedge::eviction {

// term[j] = sum over the window's queries t and the group's heads g of  (a / (1 - a))^2 * ||v[i] - y[t,g]||^2  with
// a = a[t,g,i] and i = rows[j]: the squared change of the output when row i alone goes (OpenReview MqfNzH3TVH).
// rows ascending, term f32 [rows.size()]. 0 without a window.
void exact_terms(const HeadInput& in, std::span<const int32_t> rows, std::span<float> term);

struct Margin {
  int64_t k = 0;     // rows that stay, the protected ones (HeadInput::is_protected) among them
  int chunk = 1;     // rows compete in runs of this many (select())
  double share = 0;  // of the rows that stay: so many on each side of the threshold are ranked again
};
// Changes `score` so that select() takes, of the rows on both sides of the threshold, those with the largest exact term
// (a chunk's is the sum of its rows'). Every other row keeps its score, and its place.
void refine_margin(const HeadInput& in, const Margin& margin, std::span<float> score);

}  // namespace kedge::eviction
