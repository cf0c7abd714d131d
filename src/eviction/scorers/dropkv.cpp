// DropKV: decoupled residual-output perturbation (OpenReview MqfNzH3TVH; kvpress pull request 285).
// Without row i alone an output y becomes y + a/(1-a) * (y - v[i]); the score is the square of that change,
//   score[i] = pool over neighbours of  mean over the group of  sum over the window's queries t of
//              (a[t,g,i] / (1 - a[t,g,i] + 1e-6))^2 * ||v[i] - y[t,g]||^2
// The paper's score has no pooling (pool=1); pool=7 averages as the pull request does. The difference v - y is taken
// before it is squared: where one row takes nearly all attention, expanding the square would leave rounding only.
// Scores are comparable across heads (they are output energy), so `pooled` is meaningful; the pull request is uniform.
#include "base/check.h"
#include "eviction/options.h"
#include "eviction/row_math.h"
#include "eviction/window_scorer.h"

namespace kedge::eviction {
namespace {

constexpr float kEpsilon = 1e-6F;

class DropKv final : public WindowScorer {
 public:
  explicit DropKv(const OptionValues& options)
      : WindowScorer(static_cast<int>(options.numbers.at("window"))),
        pool_(static_cast<int>(options.numbers.at("pool"))) {}

  void add_queries(const HeadInput& in, int begin, int end, std::span<float> sum) const override {
    check(in.y != nullptr, "dropkv needs the heads' outputs");
    for_weight_batches(in, begin, end, [&](int t, int n, std::span<float> a) {
      for (float& weight : a) {
        const float ratio = weight / (1 - weight + kEpsilon);
        weight = ratio * ratio;
      }
      const float* y = in.y + static_cast<ptrdiff_t>(t) * in.group * in.rows.head_dim;
      add_output_errors(in.rows, {.y = y, .n = n * in.group, .weight = a.data()}, sum);
    });
  }

  void finish(const HeadInput& in, std::span<float> sum) const override {
    for (float& value : sum)
      value /= static_cast<float>(in.group);
    average_pool(sum, pool_);
  }

 private:
  int pool_;
};

std::unique_ptr<Scorer> make(const OptionValues& options) { return std::make_unique<DropKv>(options); }

}  // namespace

Method scorer_dropkv() {
  return {.info = {.name = "dropkv",
                   .summary = "the squared change of the outputs when a row goes alone",
                   .source = "DropKV, OpenReview MqfNzH3TVH; pooling as kvpress pull request 285",
                   .options = {integer_option("window", "32", {1, 1024}, "last queries observed"),
                               odd_option("pool", "7", {1, 63}, "average of the scores along the rows; 1: off")}},
          .default_allocator = "uniform",
          .default_schedule = kEveryTurn,
          .default_sinks = "0",
          .default_recent = "32",
          .aliases = {"drop_kv", "drop-kv"},
          .cost = "window * n * head_dim",
          .example = {"window=1,pool=1", {0.0937F, 0.03F, 0.05F, 0.0214F, 0.4799F, 0.1139F}},
          .make_scorer = make};
}

}  // namespace kedge::eviction
