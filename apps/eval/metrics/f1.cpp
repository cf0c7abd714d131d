// F1 over words: Rajpurkar et al. 2016, "SQuAD", arXiv:1606.05250.
#include <algorithm>
#include <unordered_map>

#include "eval/metrics.h"
#include "eval/metrics/words.h"

namespace kedge::eval {
namespace {

using Words = std::vector<std::u32string>;

// 2 P R / (P + R) over the multisets of words. An empty side scores only against another one, as in SQuAD 2.
double f1(const Words& prediction, const Words& answer) {
  if (prediction.empty() || answer.empty())
    return prediction.empty() && answer.empty() ? 1 : 0;
  std::unordered_map<std::u32string_view, int64_t> left;
  for (const std::u32string& word : answer)
    ++left[word];
  int64_t n_shared = 0;
  for (const std::u32string& word : prediction) {
    const auto found = left.find(word);
    if (found != left.end() && found->second-- > 0)
      ++n_shared;
  }
  return 2.0 * static_cast<double>(n_shared) / static_cast<double>(prediction.size() + answer.size());
}

double score(std::string_view prediction, std::span<const std::string> answers) {
  const Words words = squad_words(prediction);
  double best = 0;
  for (const std::string& answer : answers)
    best = std::max(best, f1(words, squad_words(answer)));
  return best;
}

}  // namespace

MetricInfo f1_metric() {
  return {.name = "f1",
          .summary = "F1 over words after SQuAD's normalisation, best of the references (arXiv:1606.05250)",
          .score = score};
}

}  // namespace kedge::eval
