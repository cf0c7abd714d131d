// Exact match: Rajpurkar et al. 2016, "SQuAD", arXiv:1606.05250.
#include <algorithm>

#include "eval/metrics.h"
#include "eval/metrics/words.h"

namespace kedge::eval {
namespace {

double score(std::string_view prediction, std::span<const std::string> answers) {
  const auto words = squad_words(prediction);
  const auto same = [&words](const std::string& answer) { return squad_words(answer) == words; };
  return std::ranges::any_of(answers, same) ? 1 : 0;
}

}  // namespace

MetricInfo exact_metric() {
  return {.name = "exact",
          .summary = "1 where the answer equals any reference after SQuAD's normalisation (arXiv:1606.05250)",
          .score = score};
}

}  // namespace kedge::eval
