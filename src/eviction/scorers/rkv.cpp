// R-KV (arXiv 2505.24133; released code Zefan-Cai/R-KV): rows that are attended to and that no other row repeats.
//   score[i] = lambda * A[i] - (1 - lambda) * R[i]       for rows before the window; the window's own rows stay
//   A = max-pool along the rows of  mean over the window's queries of  softmax over the rows before the window
//   R = softmax over all rows of  mean over the rows m of cos(k[m], k[i])
// where i itself counts as 0, and so does, for each m, the newest row whose cosine with m is above `threshold`: the
// last of several repetitions is not called redundant. (The release zeroes row 0 where m has no such row; here
// nothing.) group=max, the release: the largest logit of the group's heads, then softmax. group=mean: softmax, then the
// mean. lambda .07 as released; the paper says .1. redundancy=mean leaves the repetitions in, R = k[i].mean(k) of unit
// keys: linear in n instead of quadratic, for long prompts. Made for decoding: the release evicts every 128 tokens.
#include <algorithm>
#include <cmath>

#include "eviction/options.h"
#include "eviction/row_math.h"
#include "eviction/window_scorer.h"

namespace kedge::eviction {
namespace {

// x := softmax(x)
void softmax(std::span<float> x) {
  const float most = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (float& value : x)
    sum += value = std::exp(value - most);
  for (float& value : x)
    value = static_cast<float>(value / sum);
}

class RKv final : public WindowScorer {
 public:
  explicit RKv(const OptionValues& options)
      : WindowScorer(static_cast<int>(options.numbers.at("window"))),
        pool_(static_cast<int>(options.numbers.at("pool"))),
        lambda_(static_cast<float>(options.numbers.at("lambda"))),
        threshold_(static_cast<float>(options.numbers.at("threshold"))),
        is_max_(options.choices.at("group") == "max"),
        has_pairs_(options.choices.at("redundancy") == "pairs") {}

  void add_queries(const HeadInput& in, int begin, int end, std::span<float> sum) const override {
    const size_t n_before = static_cast<size_t>(rows_before_window(in));
    if (n_before == 0)
      return;
    std::vector<float> logits(static_cast<size_t>(in.group) * sum.size());
    for (int t = begin; t < end; ++t) {
      const float* q = in.q + static_cast<ptrdiff_t>(t) * in.group * in.rows.head_dim;
      key_products(in.rows, q, in.group, in.scale, logits);
      for (size_t g = 1; is_max_ && g < static_cast<size_t>(in.group); ++g) {
        for (size_t i = 0; i < n_before; ++i)
          logits[i] = std::max(logits[i], logits[g * sum.size() + i]);
      }
      const size_t n_lists = is_max_ ? 1 : static_cast<size_t>(in.group);
      for (size_t g = 0; g < n_lists; ++g) {
        const auto list = std::span(logits).subspan(g * sum.size(), n_before);
        softmax(list);
        for (size_t i = 0; i < n_before; ++i)
          sum[i] += list[i] / static_cast<float>(n_lists);
      }
    }
  }

  void finish(const HeadInput& in, std::span<float> sum) const override {
    const int32_t n_before = rows_before_window(in);
    const auto before = sum.first(static_cast<size_t>(n_before));
    for (float& value : before)
      value /= static_cast<float>(in.n_window);
    max_pool(before, pool_);
    std::vector<float> redundancy = has_pairs_ ? key_redundancy(in.rows, threshold_) : mean_cosines(in.rows);
    softmax(redundancy);
    for (size_t i = 0; i < before.size(); ++i)
      before[i] = lambda_ * before[i] - (1 - lambda_) * redundancy[i];
    lift_window_rows(sum, n_before);
  }

 private:
  static std::vector<float> mean_cosines(const KvHeadView& rows) {
    const size_t dim = static_cast<size_t>(rows.head_dim);
    const std::vector<float> keys = unit_keys(rows);
    std::vector<float> mean(dim, 0.0F);
    for (size_t at = 0; at < keys.size(); ++at)
      mean[at % dim] += keys[at] / static_cast<float>(rows.n_rows);
    std::vector<float> cosine(static_cast<size_t>(rows.n_rows), 0.0F);
    for (size_t at = 0; at < keys.size(); ++at)
      cosine[at / dim] += keys[at] * (mean[at % dim] - keys[at] / static_cast<float>(rows.n_rows));
    return cosine;
  }

  int pool_;
  float lambda_, threshold_;
  bool is_max_, has_pairs_;
};

std::unique_ptr<Scorer> make(const OptionValues& options) { return std::make_unique<RKv>(options); }

}  // namespace

Method scorer_rkv() {
  return {.info = {.name = "rkv",
                   .summary = "attention of the last queries less the redundancy of the keys",
                   .source = "R-KV, arXiv 2505.24133; defaults as released",
                   .options = {integer_option("window", "8", {1, 1024}, "last queries observed; their rows are kept"),
                               odd_option("pool", "7", {1, 63}, "max-pool of the attention along the rows; 1: off"),
                               real_option("lambda", "0.07", {0, 1}, "share of attention; paper: 0.1"),
                               real_option("threshold", "0.5", {-1, 1}, "cosine from which keys repeat each other"),
                               choice_option("group", {"max", "mean"}, "largest logit, or mean weight of the heads"),
                               choice_option("redundancy", {"pairs", "mean"}, "n^2 pairs, or the mean key")}},
          .default_allocator = "uniform",
          .default_schedule = "every:n=128",
          .default_sinks = "0",
          .default_recent = "8",
          .aliases = {"r_kv", "r-kv", "r1kv"},
          .cost = "n^2 * head_dim",
          .example = {"window=1,pool=1", {-0.1494F, -0.1648F, -0.1648F, -0.1275F, -0.1227F, 2}},
          .make_scorer = make};
}

}  // namespace kedge::eviction
