// LagKV (arXiv 2504.04704), as kvpress 0.5: no attention at all; rows are judged by the rows that come after them.
// Behind the sinks the rows are cut into partitions of `lag`. For each row of a partition, and the minimum and maximum
// of each dimension over the next partition:
//   S[i] = softmax over the partition of  std over the dimensions of (x[i] - min) / (max - min)
//   score[i] = rank within the partition, 0..1, of  (S of keys + S of values) / 2
// cross_scoring=on compares the values themselves across partitions instead of ranks. The last partition and what is
// left behind it have nothing to be judged by and stay; where the budget is smaller than they are, the newest win.
// With fewer than two partitions all rows are such a tail. kvpress gives all of the tail one score, so which of it
// stays in a small budget is its sort's choice; and a dimension without any range is NaN there, 0 here. Partitions are
// cut over the rows that a head still holds, so what was evicted before is not judged again but shifts the cuts.
#include <algorithm>
#include <cmath>

#include "eviction/options.h"
#include "eviction/policy.h"

namespace kedge::eviction {
namespace {

class LagKv final : public Scorer {
 public:
  LagKv(int lag, bool is_cross) : lag_(static_cast<size_t>(lag)), is_cross_(is_cross) {}
  Needs needs() const override { return {.values = true}; }

  void score(const HeadInput& in, std::span<float> score) const override {
    const size_t n = score.size();
    size_t begin = 0;  // of the partitions: behind the sinks, which are the protected rows from row 0 on
    while (begin < in.is_protected.size() && in.is_protected[begin] != 0)
      ++begin;
    std::fill(score.begin(), score.end(), 3.0F);
    size_t next = begin;
    for (; next + 2 * lag_ <= n; next += lag_)
      score_partition(in, next, score.subspan(next, lag_));
    for (size_t i = next; i < n; ++i)
      score[i] = 2.0F + static_cast<float>(i - next) / static_cast<float>(n);
  }

 private:
  void score_partition(const HeadInput& in, size_t begin, std::span<float> score) const {
    const size_t floats = lag_ * static_cast<size_t>(in.rows.head_dim);
    std::vector<float> k(2 * floats);
    std::vector<float> v(2 * floats);
    read_rows(in.rows, static_cast<int>(begin), static_cast<int>(begin + 2 * lag_), k.data(), v.data());
    const std::vector<double> of_keys = spread(k);
    const std::vector<double> of_values = spread(v);
    std::vector<double> mean(lag_);
    for (size_t i = 0; i < lag_; ++i)
      mean[i] = (of_keys[i] + of_values[i]) / 2;
    std::vector<size_t> order(lag_);
    for (size_t i = 0; i < lag_; ++i)
      order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return mean[a] < mean[b]; });
    for (size_t rank = 0; rank < lag_; ++rank)
      score[order[rank]] =
          static_cast<float>(is_cross_ ? mean[order[rank]] : static_cast<double>(rank) / static_cast<double>(lag_));
  }

  // x f32 [2 * lag][dim]: the partition, then the one it is judged by. Softmax over the partition: f64 [lag].
  std::vector<double> spread(std::span<const float> x) const {
    const size_t dim = x.size() / (2 * lag_);
    const auto own = x.first(lag_ * dim);
    const auto reference = x.subspan(lag_ * dim);
    std::vector<double> sum(lag_, 0.0);
    std::vector<double> squares(lag_, 0.0);
    for (size_t j = 0; j < dim; ++j) {
      float low = reference[j];
      float high = reference[j];
      for (size_t i = 1; i < lag_; ++i) {
        low = std::min(low, reference[i * dim + j]);
        high = std::max(high, reference[i * dim + j]);
      }
      for (size_t i = 0; i < lag_; ++i) {
        const double place = high > low ? (double{own[i * dim + j]} - low) / (double{high} - low) : 0;
        sum[i] += place;
        squares[i] += place * place;
      }
    }
    double total = 0;
    const double d = static_cast<double>(dim);
    for (size_t i = 0; i < lag_; ++i)  // the unbiased deviation; no maximum taken out: it is far from overflow
      total += sum[i] = std::exp(std::sqrt(std::max(squares[i] - sum[i] * sum[i] / d, 0.0) / std::max(d - 1, 1.0)));
    for (double& value : sum)
      value /= total;
    return sum;
  }

  size_t lag_;
  bool is_cross_;
};

std::unique_ptr<Scorer> make(const OptionValues& options) {
  return std::make_unique<LagKv>(static_cast<int>(options.numbers.at("lag")),
                                 options.choices.at("cross_scoring") == "on");
}

}  // namespace

Method scorer_lagkv() {
  return {.info = {.name = "lagkv",
                   .summary = "rows that stand out against the partition of rows after them",
                   .source = "LagKV, arXiv 2504.04704; as kvpress 0.5",
                   .options = {integer_option("lag", "128", {1, 4096}, "rows of a partition"),
                               choice_option("cross_scoring", {"off", "on"}, "ranks, or values across partitions")}},
          .default_allocator = "uniform",
          .default_schedule = kEveryTurn,
          .default_sinks = "4",
          .default_recent = "0",
          .aliases = {"lag_kv", "lag-kv"},
          .cost = "n * head_dim",
          .example = {"lag=2", {0.5F, 0, 0, 0.5F, 2, 2.1667F}},
          .make_scorer = make};
}

}  // namespace kedge::eviction
