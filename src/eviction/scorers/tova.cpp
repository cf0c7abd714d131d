// TOVA: token omission via attention (arXiv 2401.06104).
//   score[i] = mean over the query heads of  a[newest query, head, i]
// One list for all heads of a layer, as in the paper and in kvpress; heads=group gives each kv head the mean over its
// own group instead. The paper judges the newest row like any other; kvpress always keeps it, and so does `recent=1`
// here. Made for decoding, one row out for one row in (schedule every:n=1); each eviction looks at the newest query
// only, so with longer intervals newcomers have been seen by that query alone: `recent` is their grace period.
#include <algorithm>

#include "eviction/options.h"
#include "eviction/window_scorer.h"

namespace kedge::eviction {
namespace {

class Tova final : public WindowScorer {
 public:
  explicit Tova(bool has_one_list) : WindowScorer(1), has_one_list_(has_one_list) {}
  bool has_one_list() const override { return has_one_list_; }

  void add_queries(const HeadInput& in, int begin, int end, std::span<float> sum) const override {
    for_weight_batches(in, begin, end, [&](int, int, std::span<float> a) {
      for (size_t at = 0; at < a.size(); at += sum.size()) {
        for (size_t i = 0; i < sum.size(); ++i)
          sum[i] += a[at + i];
      }
    });
  }

  void finish(const HeadInput& in, std::span<float> sum) const override {
    for (float& value : sum)
      value /= static_cast<float>(in.n_window * in.group);
  }

 private:
  bool has_one_list_;
};

std::unique_ptr<Scorer> make(const OptionValues& options) {
  return std::make_unique<Tova>(options.choices.at("heads") == "layer");
}

}  // namespace

Method scorer_tova() {
  return {.info = {.name = "tova",
                   .summary = "attention of the newest query, mean over heads",
                   .source = "TOVA, arXiv 2401.06104; the newest row kept as kvpress 0.5",
                   .options = {choice_option("heads", {"layer", "group"},
                                             "one list for the layer's heads, or one for each kv head")}},
          .default_allocator = "uniform",
          .default_schedule = kEveryTurn,
          .default_sinks = "0",
          .default_recent = "1",
          .cost = "n * head_dim",
          .example = {"", {0.3087F, 0.1136F, 0.1136F, 0.0418F, 0.3087F, 0.1136F}},
          .make_scorer = make};
}

}  // namespace kedge::eviction
