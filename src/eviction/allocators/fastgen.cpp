// FastGen (ICLR 2024, arXiv 2310.01801): every head is profiled and gets what its kind of attention needs. Over the
// window's queries, the cheapest of these nested sets that holds at least `recover` of the attention:
//   protected and special rows  ->  + punctuation  ->  + frequent: the `frequent` share with the most attention
//   ->  + local: the `local` share of newest rows  ->  all rows
// A kv head takes the largest set that one of its query heads needs. The sizes of the sets are the weights by which
// heads of all layers share the total; which rows are kept is the scorer's business. Where the vocabulary's kinds of
// tokens are not known, no row is special or punctuation.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "eviction/divide_rows.h"
#include "eviction/options.h"
#include "eviction/window_scorer.h"

namespace kedge::eviction {
namespace {

constexpr size_t kTiers = 5;

class FastGen final : public Allocator {
 public:
  explicit FastGen(const OptionValues& options)
      : window_(static_cast<int>(options.numbers.at("window"))),
        recover_(options.numbers.at("recover")),
        frequent_(options.numbers.at("frequent")),
        local_(options.numbers.at("local")) {}

  Needs needs() const override { return {.window = window_, .values = true, .tokens = true}; }
  Layers layers() const override { return Layers::shared; }

  double measure(const HeadInput& in) const override {
    const auto n_rows = static_cast<size_t>(in.rows.n_rows);
    const auto group = static_cast<size_t>(in.group);
    if (n_rows == 0 || in.n_window == 0)
      return static_cast<double>(n_rows);
    std::vector<double> attention(group * n_rows, 0.0);  // sum over queries
    for_weight_batches(in, 0, in.n_window, [&](int, int n, std::span<float> a) {
      for (size_t m = 0; m < static_cast<size_t>(n) * group; ++m) {
        for (size_t i = 0; i < n_rows; ++i)
          attention[m % group * n_rows + i] += a[m * n_rows + i];
      }
    });
    const std::vector<size_t> tier = tiers(in, attention);
    std::array<int64_t, kTiers> size{};  // rows of each tier alone
    for (const size_t one : tier)
      ++size[one];
    size_t needed = 0;
    for (size_t g = 0; g < group; ++g) {
      std::array<double, kTiers> mass{};
      for (size_t i = 0; i < n_rows; ++i)
        mass[tier[i]] += attention[g * n_rows + i];
      double held = mass[0];
      size_t own = 0;
      while (own + 1 < kTiers && held < recover_ * in.n_window)
        held += mass[++own];
      needed = std::max(needed, own);
    }
    return static_cast<double>(
        std::accumulate(size.begin(), size.begin() + static_cast<int64_t>(needed) + 1, int64_t{0}));
  }

  std::vector<std::vector<int32_t>> allocate_layers(std::span<const LayerScores> layers, int64_t total) const override {
    const LayerScores all = as_one_layer(layers);
    return split_by_layer(layers, divide_by_weight(all, all.measured, total));
  }
  std::vector<int32_t> allocate(const LayerScores& layer, int64_t total) const override {
    return divide_by_weight(layer, layer.measured, total);
  }

 private:
  // The cheapest set that has the row, [n_rows].
  std::vector<size_t> tiers(const HeadInput& in, std::span<const double> attention) const {
    const auto n_rows = static_cast<size_t>(in.rows.n_rows);
    std::vector<size_t> tier(n_rows, kTiers - 1);
    const auto first_local = static_cast<size_t>(std::llround(static_cast<double>(n_rows) * (1 - local_)));
    std::fill(tier.begin() + static_cast<int64_t>(first_local), tier.end(), 3);
    std::vector<double> total(n_rows, 0.0);
    for (size_t j = 0; j < attention.size(); ++j)
      total[j % n_rows] += attention[j];
    std::vector<size_t> order(n_rows);
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return total[a] > total[b]; });
    order.resize(static_cast<size_t>(std::llround(static_cast<double>(n_rows) * frequent_)));
    for (const size_t i : order)
      tier[i] = 2;
    for (size_t i = 0; i < n_rows; ++i) {
      const auto position = static_cast<size_t>(in.rows.position(static_cast<int32_t>(i)));
      const uint8_t kinds = position < in.token_kinds.size() ? in.token_kinds[position] : uint8_t{0};
      if ((kinds & kPunctuationToken) != 0)
        tier[i] = 1;
      if ((kinds & kSpecialToken) != 0 || (!in.is_protected.empty() && in.is_protected[i] != 0))
        tier[i] = 0;
    }
    return tier;
  }

  int window_;
  double recover_;
  double frequent_;
  double local_;
};

std::unique_ptr<Allocator> make(const OptionValues& options) { return std::make_unique<FastGen>(options); }

}  // namespace

Method allocator_fastgen() {
  return {.info = {.name = "fastgen",
                   .summary = "heads share by the smallest set of rows that holds most of their attention",
                   .source = "FastGen, ICLR 2024, arXiv 2310.01801",
                   .options = {integer_option("window", "32", {1, 1024}, "last queries that are profiled"),
                               real_option("recover", "0.95", {0, 1}, "attention that the set must hold"),
                               real_option("frequent", "0.3", {0, 1}, "share of rows that count as frequent"),
                               real_option("local", "0.3", {0, 1}, "share of rows that count as local")}},
          .cost = "window * n * head_dim",
          .make_allocator = make};
}

}  // namespace kedge::eviction
