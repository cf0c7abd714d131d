// Share of references found, as RULER scores retrieval of several values: Hsieh et al. 2024, arXiv:2404.06654.
#include <algorithm>

#include "eval/metrics.h"
#include "eval/metrics/holds.h"

namespace kedge::eval {
namespace {

double score(std::string_view prediction, std::span<const std::string> answers) {
  if (answers.empty())
    return 0;
  const std::u32string text = folded(prediction);
  const auto found = std::ranges::count_if(answers, [&text](const std::string& answer) { return holds(text, answer); });
  return static_cast<double>(found) / static_cast<double>(answers.size());
}

}  // namespace

MetricInfo contains_all_metric() {
  return {.name = "contains_all",
          .summary = "share of the references that occur in the answer, in any case (RULER, arXiv:2404.06654)",
          .score = score};
}

}  // namespace kedge::eval
