// VATP: value-aware token pruning (EMNLP 2024, arXiv 2406.12335). Attention alone overrates rows with tiny values.
//   score[i] = S[i] * ||v[i]||_1
// attention=window (Scissorhands' S): the mean over the last `window` queries and the group's heads of a[t,g,i].
// attention=all (H2O's S): what row i has received from all queries since it was written, mean over the group.
// The mean over a group is ours; the paper's models have one query head a kv head. The first 20 rows are sinks with
// values near 0, which the product would evict: they stay by index. The released code observes 400 queries; 32 is the
// default here, because 400 queries of every layer cost more memory than a small budget.
#include <algorithm>

#include "base/check.h"
#include "eviction/options.h"
#include "eviction/row_math.h"
#include "eviction/window_scorer.h"

namespace kedge::eviction {
namespace {

class Vatp final : public WindowScorer {
 public:
  Vatp(int window, bool is_all) : WindowScorer(is_all ? 0 : window), is_all_(is_all) {}

  Needs needs() const override {
    return is_all_ ? Needs{.values = true, .attention_sum = true} : WindowScorer::needs();
  }
  bool splits_by_query() const override { return !is_all_; }

  void score(const HeadInput& in, std::span<float> score) const override {
    if (!is_all_)
      return WindowScorer::score(in, score);
    check(in.attention_sum.size() == score.size(), "vatp:attention=all needs the attention received");
    std::copy(in.attention_sum.begin(), in.attention_sum.end(), score.begin());
    weigh(in, 1, score);
  }

  void add_queries(const HeadInput& in, int begin, int end, std::span<float> sum) const override {
    for_weight_batches(in, begin, end, [&](int, int, std::span<float> a) {
      for (size_t at = 0; at < a.size(); at += sum.size()) {
        for (size_t i = 0; i < sum.size(); ++i)
          sum[i] += a[at + i];
      }
    });
  }

  void finish(const HeadInput& in, std::span<float> sum) const override {
    weigh(in, 1 / static_cast<float>(in.n_window * in.group), sum);
  }

 private:
  static void weigh(const HeadInput& in, float factor, std::span<float> score) {
    const std::vector<float> norms = row_norms(in.rows, Part::values, Norm::l1);
    for (size_t i = 0; i < norms.size(); ++i)
      score[i] *= factor * norms[i];
  }

  bool is_all_;
};

std::unique_ptr<Scorer> make(const OptionValues& options) {
  return std::make_unique<Vatp>(static_cast<int>(options.numbers.at("window")),
                                options.choices.at("attention") == "all");
}

}  // namespace

Method scorer_vatp() {
  return {.info = {.name = "vatp",
                   .summary = "attention received times the size of the value",
                   .source = "VATP, EMNLP 2024, arXiv 2406.12335",
                   .options = {integer_option("window", "32", {1, 1024}, "last queries observed; paper: 400"),
                               choice_option("attention", {"window", "all"},
                                             "of the last queries (Scissorhands), or of all queries so far (H2O)")}},
          .default_allocator = "uniform",
          .default_schedule = kEveryTurn,
          .default_sinks = "20",
          .default_recent = "10",
          .cost = "window * n * head_dim",
          .example = {"window=1", {0.3087F, 0.3408F, 0.2272F, 0.1671F, 0.6174F, 0.3408F}},
          .make_scorer = make};
}

}  // namespace kedge::eviction
