// Edit similarity: 1 - d / max(lengths), d the distance of Levenshtein 1966 over code points; the score of code
// completion in Lu et al. 2021, "CodeXGLUE", arXiv:2102.04664.
#include <algorithm>

#include "eval/metrics.h"
#include "eval/metrics/distance.h"
#include "eval/metrics/words.h"

namespace kedge::eval {
namespace {

std::vector<uint32_t> symbols(std::string_view text) {
  const std::u32string points = code_points(trimmed(text));
  return {points.begin(), points.end()};
}

double score(std::string_view prediction, std::span<const std::string> answers) {
  const std::vector<uint32_t> points = symbols(prediction);
  double best = 0;
  for (const std::string& answer : answers) {
    const std::vector<uint32_t> reference = symbols(answer);
    const size_t longest = std::max(points.size(), reference.size());
    const auto distance = static_cast<double>(levenshtein(points, reference));
    best = std::max(best, longest == 0 ? 1 : 1 - distance / static_cast<double>(longest));
  }
  return best;
}

}  // namespace

MetricInfo edit_metric() {
  return {.name = "edit",
          .summary =
              "1 - Levenshtein distance / longer length, in characters, white space at the ends left out, best "
              "of the references (CodeXGLUE, arXiv:2102.04664)",
          .score = score};
}

}  // namespace kedge::eval
