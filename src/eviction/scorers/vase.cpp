// VaSE, value-aware stochastic eviction (arXiv 2606.03928): values of large magnitude are rare, and without them models
// fall into loops; what else stays is drawn, so that the rows that are kept differ.
//   the `reserve` rows with the largest range  max over j of v[i][j] - min over j of v[i][j]  stay;
//   the others are drawn without replacement with probabilities proportional to their attention, the mean of a[t,g,i]
//   over the last `window` queries: score[i] = log(attention) + a Gumbel number of seed, head, position and length.
// Drawn anew at each eviction. The reserve is at most half of the rows that a head may keep.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "eviction/draw.h"
#include "eviction/options.h"
#include "eviction/window_scorer.h"

namespace kedge::eviction {
namespace {

constexpr float kLeastAttention = 1e-30F;  // log -69; a Gumbel number lies within -3 .. 17
constexpr float kReserved = 1000;          // above every drawn score

class Vase final : public WindowScorer {
 public:
  explicit Vase(const OptionValues& options)
      : WindowScorer(static_cast<int>(options.numbers.at("window"))),
        n_reserved_(static_cast<size_t>(options.numbers.at("reserve"))),
        is_random_(options.choices.at("draw") == "on") {}

  void add_queries(const HeadInput& in, int begin, int end, std::span<float> sum) const override {
    for_weight_batches(in, begin, end, [&](int, int, std::span<float> a) {
      for (size_t at = 0; at < a.size(); at += sum.size()) {
        for (size_t i = 0; i < sum.size(); ++i)
          sum[i] += a[at + i];
      }
    });
  }

  void finish(const HeadInput& in, std::span<float> sum) const override {
    for (size_t i = 0; i < sum.size(); ++i) {
      const float attention = sum[i] / static_cast<float>(in.n_window * in.group);
      const auto what =
          static_cast<uint64_t>(in.n_tokens) << 32 | static_cast<uint32_t>(in.rows.position(static_cast<int32_t>(i)));
      const float uniform = std::clamp(draw(in, what), 0x1p-25F, 1 - 0x1p-24F);
      sum[i] = std::log(std::max(attention, kLeastAttention)) - (is_random_ ? std::log(-std::log(uniform)) : 0.0F);
    }
    const std::vector<float> range = value_ranges(in.rows);
    const size_t most = in.n_keep > 0 ? static_cast<size_t>(in.n_keep) / 2 : sum.size() / 2;
    std::vector<size_t> order(sum.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, [&](size_t a, size_t b) { return range[a] > range[b]; });
    for (size_t i = 0; i < std::min({n_reserved_, most, sum.size()}); ++i)
      sum[order[i]] = kReserved + range[order[i]];
  }

 private:
  static std::vector<float> value_ranges(const KvHeadView& rows) {
    const size_t d = static_cast<size_t>(rows.head_dim);
    std::vector<float> v(static_cast<size_t>(rows.n_rows) * d);
    read_rows(rows, 0, rows.n_rows, nullptr, v.data());
    std::vector<float> range;
    for (size_t at = 0; at < v.size(); at += d) {
      const auto [low, high] = std::ranges::minmax_element(std::span(v).subspan(at, d));
      range.push_back(*high - *low);
    }
    return range;
  }

  size_t n_reserved_;
  bool is_random_;
};

std::unique_ptr<Scorer> make(const OptionValues& options) { return std::make_unique<Vase>(options); }

}  // namespace

Method scorer_vase() {
  return {.info = {.name = "vase",
                   .summary = "rows with values of a large range, and a draw by attention among the others",
                   .source = "VaSE, arXiv 2606.03928 (attention form)",
                   .options = {integer_option("window", "32", {1, 1024}, "last queries whose attention is averaged"),
                               integer_option("reserve", "200", {0, 1048576}, "rows that stay for their values"),
                               choice_option("draw", {"on", "off"}, "off: by attention alone")}},
          .default_allocator = "uniform",
          .default_schedule = kEveryTurn,
          .default_sinks = "4",
          .default_recent = "12.5%",
          .cost = "window * n * head_dim",
          .example = {"window=1,reserve=2,draw=off", {-1.1755F, -2.1748F, -2.1748F, 1004, -1.1755F, 1003}},
          .make_scorer = make};
}

}  // namespace kedge::eviction
