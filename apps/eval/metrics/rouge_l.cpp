// ROUGE-L, sentence level, beta = 1: Lin 2004, "ROUGE: A Package for Automatic Evaluation of Summaries", section 3.1.
#include <algorithm>

#include "eval/metrics.h"
#include "eval/metrics/distance.h"
#include "eval/metrics/words.h"

namespace kedge::eval {
namespace {

// P = LCS / words of the prediction, R = LCS / words of the answer; 2 P R / (P + R) = 2 LCS / (both lengths).
double score(std::string_view prediction, std::span<const std::string> answers) {
  const auto words = rouge_words(prediction);
  double best = 0;
  for (const std::string& answer : answers) {
    const auto reference = rouge_words(answer);
    const size_t n_words = words.size() + reference.size();
    const WordIds ids = word_ids(words, reference);
    const auto shared = static_cast<double>(common_subsequence(ids.a, ids.b));
    best = std::max(best, n_words == 0 ? 1 : 2 * shared / static_cast<double>(n_words));
  }
  return best;
}

}  // namespace

MetricInfo rouge_l_metric() {
  return {.name = "rouge_l",
          .summary = "F-measure of the longest common subsequence of words, best of the references (Lin 2004)",
          .score = score};
}

}  // namespace kedge::eval
