// Echo: rows that the text's own queries look at, in the first reading and once more from behind the text.
//   score[i] = echo[i] / mean(echo) + past * past[i] / mean(past)
// echo: the largest weight that the queries of neighbouring tokens give the row when they ask from behind the text
// (session/echo.h; a repetition of the text, as KVzip makes it, without making it). past: the mean weight of a sample
// of all queries since the row was written (H2O, arXiv 2306.14048, by how many could see it). Means are over the
// unprotected rows of the head. Neither looks at the end of the text more than at the rest of it: what the last tokens
// ask for comes in by the allocator `error`.
#include <cmath>

#include "base/check.h"
#include "eviction/options.h"

namespace kedge::eviction {
namespace {

class Echo final : public Scorer {
 public:
  explicit Echo(const OptionValues& options) : past_(options.numbers.at("past")) {}
  Needs needs() const override { return {.echo = true}; }

  void score(const HeadInput& in, std::span<float> score) const override {
    check(in.echo.size() == score.size() && in.past.size() == score.size(), "echo needs what queries looked at");
    const double echo = share(in, in.echo);
    const double past = past_ * share(in, in.past);
    for (size_t i = 0; i < score.size(); ++i)
      score[i] = static_cast<float>(echo * in.echo[i] + past * in.past[i]);
  }

 private:
  // 1 / mean over the unprotected rows; 0 where that is 0.
  static double share(const HeadInput& in, std::span<const float> values) {
    double sum = 0;
    int64_t n = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      if (!in.is_protected.empty() && in.is_protected[i] != 0)
        continue;
      sum += values[i];
      ++n;
    }
    return sum > 0 ? static_cast<double>(n) / sum : 0;
  }

  double past_;
};

std::unique_ptr<Scorer> make(const OptionValues& options) { return std::make_unique<Echo>(options); }

}  // namespace

Method scorer_echo() {
  return {.info = {.name = "echo",
                   .summary = "what the text's own queries look at, asked once more from behind the text",
                   .source = "ours; after KVzip, arXiv 2505.23416, and H2O, arXiv 2306.14048",
                   .options = {real_option("past", "0.3", {0, 1000}, "weight of the attention so far")}},
          .default_allocator = "error:echo=0.1",
          .default_schedule = "every:n=64,share=0.04",
          .default_sinks = "4",
          .default_recent = "25%",
          .cost = "n; every query asks 512 rows once more, every sixteenth all rows",
          .example = {"", {3.2667F, 0.6933F, 1.9067F, 0.4533F, 1.0267F, 0.4533F}},
          .make_scorer = make};
}

}  // namespace kedge::eviction
