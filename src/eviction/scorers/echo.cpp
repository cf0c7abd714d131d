// Echo: rows that the text's own queries look at, in the first reading and once more from behind the text.
//   score[i] = echo[i] / mean(echo) + past * past[i] / mean(past) + anchor * b[i] / mean(b)
// echo: the largest weight that the queries of neighbouring tokens give the row when they ask from behind the text
// (session/echo.h; a repetition of the text, as KVzip makes it, without making it). past: the mean weight of a sample
// of all queries since the row was written (H2O, arXiv 2306.14048, by how many could see it). b: the positive part of
// AnDPro's score (OpenReview Tdl89SZItB), which sees what the last tokens ask for. Means are over the unprotected rows
// of the head.
#include <algorithm>

#include "base/check.h"
#include "eviction/anchor.h"
#include "eviction/options.h"
#include "eviction/row_math.h"
#include "eviction/window_scorer.h"

namespace kedge::eviction {
namespace {

class Echo final : public Scorer {
 public:
  explicit Echo(const OptionValues& options)
      : past_(options.numbers.at("past")),
        anchor_(options.numbers.at("anchor")),
        window_(static_cast<int>(options.numbers.at("window"))),
        pool_(static_cast<int>(options.numbers.at("pool"))) {}
  Needs needs() const override { return {.window = anchor_ > 0 ? window_ : 0, .values = anchor_ > 0, .echo = true}; }

  void score(const HeadInput& in, std::span<float> score) const override {
    check(in.echo.size() == score.size() && in.past.size() == score.size(), "echo needs what queries looked at");
    const double echo = unit_mean(in, in.echo);
    const double past = past_ * unit_mean(in, in.past);
    const std::vector<float> b = along_anchor(in);
    const double anchor = anchor_ * unit_mean(in, b);
    for (size_t i = 0; i < score.size(); ++i)
      score[i] = static_cast<float>(echo * in.echo[i] + past * in.past[i] + anchor * b[i]);
  }

  std::vector<ScorePart> explain(const HeadInput& in, std::span<const float> /*score*/) const override {
    return {{.name = "echo", .value = {in.echo.begin(), in.echo.end()}},
            {.name = "past", .value = {in.past.begin(), in.past.end()}},
            {.name = "anchor", .value = along_anchor(in)}};
  }

 private:
  std::vector<float> along_anchor(const HeadInput& in) const {
    const HeadInput head = last_queries(in, anchor_ > 0 ? window_ : 0);
    std::vector<float> sum(static_cast<size_t>(in.rows.n_rows), 0.0F);
    add_anchor_scores(head, 0, head.n_window, pool_, sum);
    for (float& one : sum)
      one = std::max(one, 0.0F);
    return sum;
  }

  double past_, anchor_;
  int window_, pool_;
};

std::unique_ptr<Scorer> make(const OptionValues& options) { return std::make_unique<Echo>(options); }

}  // namespace

Method scorer_echo() {
  return {.info = {.name = "echo",
                   .summary = "what the text's own queries look at, asked once more from behind the text",
                   .source = "ours; after KVzip, arXiv 2505.23416, and H2O, arXiv 2306.14048",
                   .options = {real_option("past", "0.3", {0, 1000}, "weight of the attention so far"),
                               real_option("anchor", "0.3", {0, 1000}, "weight of AnDPro's score"),
                               integer_option("window", "32", {1, 1024}, "last queries that it looks at"),
                               odd_option("pool", "11", {1, 63}, "its max-pool of attention along rows; 1: off")}},
          .default_allocator = "error:echo=0.1",
          .default_schedule = kEveryTurn,
          .default_sinks = "4",
          .default_recent = "25%",
          .cost = "n; every query asks 256 rows once more, every sixteenth (fewer in long texts) all rows",
          .example = {"", {3.4542F, 1.2308F, 1.9067F, 1.2036F, 1.3514F, 0.4533F}},
          .make_scorer = make};
}

}  // namespace kedge::eviction
