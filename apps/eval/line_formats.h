// Lines of JSON that carry a sample each, in the formats that users and published projects write.
#pragma once

#include <string>
#include <string_view>

#include "eval/task.h"

namespace kedge::eval {

enum class LineFormat {
  automatic,  // by the fields of each line
  kedge,      // context, question, answers; metric, max_tokens
  longbench,  // input, context, answers, dataset (Bai et al. 2023, arXiv:2308.14508)
  ruler,      // input, outputs; answer_prefix (Hsieh et al. 2024, arXiv:2404.06654)
};

LineFormat line_format(std::string_view name);  // "auto", "kedge", "longbench", "ruler"

struct LineSample {
  std::string context;
  Question question;
};

inline constexpr size_t kMaxLineBytes = size_t{8} << 20;
inline constexpr int kMaxDepth = 64;  // of nested arrays and objects

struct LineOptions {
  LineFormat format = LineFormat::automatic;
  bool wrap = true;  // kedge lines: "\n\nQuestion: ...\nAnswer:" around the question
};

// Error failed: what is wrong with which field; the caller says where the line is.
Result<LineSample> parse_line(std::string_view line, const LineOptions& options);

}  // namespace kedge::eval
