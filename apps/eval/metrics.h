// Scores of an answer, 0 (wrong) to 1 (right), from their definitions.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kedge::eval {

struct MetricInfo {
  std::string_view name;
  std::string_view summary;  // one line, with source
  // prediction and answers as raw UTF-8 (invalid bytes are allowed and count as themselves). No answers: 0.
  double (*score)(std::string_view prediction, std::span<const std::string> answers);
};

std::span<const MetricInfo> metrics();                 // exact contains contains_all f1 rouge_l edit
const MetricInfo* find_metric(std::string_view name);  // nullptr: none of that name

}  // namespace kedge::eval
