// SnapKV (NeurIPS 2024, arXiv 2404.14469), as kvpress computes it:
//   score[i] = pool over neighbours of  mean over the window's queries and the group's heads of a[t,g,i]
// for rows before the window; the window's own rows are left out of the average and always kept.
#include <algorithm>

#include "eviction/options.h"
#include "eviction/window_scorer.h"

namespace kedge::eviction {
namespace {

class SnapKv final : public WindowScorer {
 public:
  explicit SnapKv(const OptionValues& options)
      : WindowScorer(static_cast<int>(options.numbers.at("window"))),
        pool_(static_cast<int>(options.numbers.at("pool"))),
        is_average_(options.choices.at("pool_kind") == "avg") {}

  void add_queries(const HeadInput& in, int begin, int end, std::span<float> sum) const override {
    for_weight_batches(in, begin, end, [&](int, int, std::span<float> a) {
      for (size_t at = 0; at < a.size(); at += sum.size()) {
        for (size_t i = 0; i < sum.size(); ++i)
          sum[i] += a[at + i];
      }
    });
  }

  void finish(const HeadInput& in, std::span<float> sum) const override {
    const int32_t n_before = rows_before_window(in);
    const std::span<float> before = sum.first(static_cast<size_t>(n_before));
    for (float& value : before)
      value /= static_cast<float>(in.n_window * in.group);
    is_average_ ? average_pool(before, pool_) : max_pool(before, pool_);
    lift_window_rows(sum, n_before);  // they win whatever `recent` protects
  }

 private:
  int pool_;
  bool is_average_;
};

std::unique_ptr<Scorer> make(const OptionValues& options) { return std::make_unique<SnapKv>(options); }

}  // namespace

Method scorer_snapkv() {
  return {.info = {.name = "snapkv",
                   .summary = "mean attention of the last queries, pooled along the rows",
                   .source = "SnapKV, NeurIPS 2024, arXiv 2404.14469; pooling and averages as kvpress 0.5",
                   .options = {integer_option("window", "32", {1, 1024}, "last queries observed; their rows are kept"),
                               odd_option("pool", "5", {1, 63}, "pooling of the mean along the rows; 1: off"),
                               choice_option("pool_kind", {"avg", "max"}, "avg as the paper, max as Ada-KV")}},
          .default_allocator = "uniform",
          .default_schedule = kEveryTurn,
          .default_sinks = "0",
          .default_recent = "32",
          .aliases = {"snap_kv", "snap-kv"},
          .cost = "window * n * head_dim",
          .example = {"window=1,pool=1", {0.3087F, 0.1136F, 0.1136F, 0.0418F, 0.3087F, 2}},
          .make_scorer = make};
}

}  // namespace kedge::eviction
