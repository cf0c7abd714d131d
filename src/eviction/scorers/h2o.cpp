// H2O, heavy-hitter oracle (NeurIPS 2023, arXiv 2306.14048): rows that have had most attention so far, and recent ones.
//   score[i] = sum over all queries t since row i was written of  mean over the group's heads of a[t,g,i]
// divided, with norm=seen, by how many queries could see the row (kvpress's ObservedAttention; without it old rows win
// by age alone). norm=sum is the paper's plain sum. Newcomers have had few queries: `recent` rows are their grace.
#include "base/check.h"
#include "eviction/options.h"

namespace kedge::eviction {
namespace {

class H2o final : public Scorer {
 public:
  explicit H2o(const OptionValues& options) : by_seen_(options.choices.at("norm") == "seen") {}
  Needs needs() const override { return {.attention_sum = true}; }

  void score(const HeadInput& in, std::span<float> score) const override {
    check(in.attention_sum.size() == score.size(), "h2o needs the rows' attention sums");
    for (size_t i = 0; i < score.size(); ++i) {
      const int32_t n_seen = in.n_tokens - in.rows.position(static_cast<int32_t>(i));
      score[i] = in.attention_sum[i] / (by_seen_ ? static_cast<float>(n_seen) : 1.0F);
    }
  }

 private:
  bool by_seen_;
};

std::unique_ptr<Scorer> make(const OptionValues& options) { return std::make_unique<H2o>(options); }

}  // namespace

Method scorer_h2o() {
  return {.info = {.name = "h2o",
                   .summary = "heavy hitters: the attention that a row has had from all queries so far",
                   .source = "H2O, NeurIPS 2023, arXiv 2306.14048; norm=seen as kvpress 0.5 (ObservedAttention)",
                   .options = {choice_option("norm", {"seen", "sum"},
                                             "the mean over the queries that could see the row, or the paper's sum")}},
          .default_allocator = "uniform",
          .default_schedule = kEveryTurn,
          .default_sinks = "0",
          .default_recent = "50%",
          .aliases = {"observed_attention", "observed-attention", "observedattention"},
          .cost = "n; every query's attention is computed once more when it is read",
          .example = {"", {0.5F, 0.32F, 0.3F, 0.1333F, 0.4F, 0.1F}},
          .make_scorer = make};
}

}  // namespace kedge::eviction
