// Substring match, as RULER scores question answering: Hsieh et al. 2024, arXiv:2404.06654.
#include <algorithm>

#include "eval/metrics.h"
#include "eval/metrics/holds.h"

namespace kedge::eval {
namespace {

double score(std::string_view prediction, std::span<const std::string> answers) {
  const std::u32string text = folded(prediction);
  return std::ranges::any_of(answers, [&text](const std::string& answer) { return holds(text, answer); }) ? 1 : 0;
}

}  // namespace

MetricInfo contains_metric() {
  return {.name = "contains",
          .summary = "1 where any reference occurs in the answer, in any case (RULER, arXiv:2404.06654)",
          .score = score};
}

}  // namespace kedge::eval
