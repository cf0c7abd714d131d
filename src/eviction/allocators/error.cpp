// Rows go where leaving them out would change the output most, by the exact effect of leaving out one row (DropKV,
// OpenReview MqfNzH3TVH):
//   e[i] = sum over the window's queries t, g of (a / (1 - a))^2 ||v[i] - y||^2  /  sum over t, g of ||y||^2
// Within a head the scorer's order stands: a head that keeps k rows has the predicted error E(k) = sum of e over the
// rest. The sum of E over all heads of all layers is smallest, among those E allows in whole pools, where the best
// slopes of E's convex hull are taken first: neighbours in the scorer's order whose e rise are pooled to their mean
// (pool adjacent violators), and one top-k over the pools' means divides the total. Rows in the middle of a pool keep
// the scorer's order. `echo=w` adds w times the row's echo (session/echo.h) to e: heads that
// are silent now and will be asked later get rows too.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "eviction/divide_rows.h"
#include "eviction/options.h"
#include "eviction/window_scorer.h"

namespace kedge::eviction {
namespace {

constexpr float kLeastRest = 1e-6F;  // of 1 - a: a row that holds all attention has a finite error

// e of every row of a head; empty without queries.
std::vector<float> single_row_errors(const HeadInput& in) {
  const auto n_rows = static_cast<size_t>(in.rows.n_rows);
  const auto dim = static_cast<size_t>(in.rows.head_dim);
  if (in.n_window == 0 || in.y == nullptr)
    return {};
  std::vector<float> weight_sum(n_rows, 0.0F);   // sum of w = (a / (1 - a))^2
  std::vector<float> anchor_sum(n_rows, 0.0F);   // sum of w ||y||^2
  std::vector<float> product_sum(n_rows, 0.0F);  // sum of w y.v
  double output = 0;
  for_weight_batches(in, 0, in.n_window, [&](int t, int n, std::span<float> a) {
    const float* y = in.y + static_cast<size_t>(t) * static_cast<size_t>(in.group) * dim;
    for (int m = 0; m < n * in.group; ++m) {
      const float* own = y + static_cast<size_t>(m) * dim;
      const float size = std::inner_product(own, own + dim, own, 0.0F);
      output += size;
      for (size_t i = 0; i < n_rows; ++i) {
        float& weight = a[static_cast<size_t>(m) * n_rows + i];
        const float ratio = weight / std::max(1 - weight, kLeastRest);
        weight = ratio * ratio;
        weight_sum[i] += weight;
        anchor_sum[i] += weight * size;
      }
    }
    in.kernels->anchor_scores(in.rows, a.data(), y, n * in.group, product_sum.data());
  });
  std::vector<float> v(kBlockRows * dim);
  std::vector<float> error(n_rows);
  for (int32_t begin = 0; begin < in.rows.n_rows; begin += kBlockRows) {
    const int32_t end = std::min(begin + kBlockRows, in.rows.n_rows);
    read_rows(in.rows, begin, end, nullptr, v.data());
    for (int32_t row = begin; row < end; ++row) {
      const float* own = v.data() + static_cast<size_t>(row - begin) * dim;
      const auto i = static_cast<size_t>(row);
      const float size = std::inner_product(own, own + dim, own, 0.0F);
      const float sum = weight_sum[i] * size - 2 * product_sum[i] + anchor_sum[i];
      error[i] = output > 0 ? static_cast<float>(std::max(sum, 0.0F) / output) : 0;
    }
  }
  return error;
}

// Means of the pools that make `values` fall: the slopes of the concave hull of their running sum.
std::vector<double> falling(std::span<const double> values) {
  struct Pool {
    double sum;
    int64_t n;
    double mean() const { return sum / static_cast<double>(n); }
  };
  std::vector<Pool> pools;
  for (const double value : values) {
    pools.push_back({value, 1});
    while (pools.size() > 1 && pools[pools.size() - 2].mean() <= pools.back().mean()) {
      const Pool last = pools.back();
      pools.pop_back();
      pools.back().sum += last.sum;
      pools.back().n += last.n;
    }
  }
  std::vector<double> out;
  for (const Pool& pool : pools)
    out.insert(out.end(), static_cast<size_t>(pool.n), pool.mean());
  return out;
}

class ErrorDriven final : public Allocator {
 public:
  explicit ErrorDriven(const OptionValues& options)
      : window_(static_cast<int>(options.numbers.at("window"))),
        echo_(static_cast<float>(options.numbers.at("echo"))) {}

  Needs needs() const override { return {.window = window_, .values = true, .echo = echo_ > 0}; }
  Layers layers() const override { return Layers::shared; }

  void make_comparable(const HeadInput& in, std::span<float> score) const override {
    std::vector<float> error = single_row_errors(in);
    if (error.empty())
      return;
    for (size_t i = 0; i < in.echo.size(); ++i)
      error[i] += echo_ * in.echo[i];
    std::vector<size_t> order;  // unprotected rows, as the scorer ranks them
    for (size_t i = 0; i < score.size(); ++i) {
      if (in.is_protected.empty() || in.is_protected[i] == 0)
        order.push_back(i);
    }
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      if (std::isnan(score[a]) || std::isnan(score[b]))
        return !std::isnan(score[a]) && std::isnan(score[b]);
      return score[a] > score[b];
    });
    std::vector<double> ranked;
    for (const size_t i : order)
      ranked.push_back(error[i]);
    const std::vector<double> value = falling(ranked);
    std::copy(error.begin(), error.end(), score.begin());
    float above = INFINITY;
    for (size_t r = 0; r < order.size(); ++r) {
      above = std::min(static_cast<float>(value[r]), std::nextafter(above, -INFINITY));
      score[order[r]] = above;
    }
  }
  std::vector<std::vector<int32_t>> allocate_layers(std::span<const LayerScores> layers, int64_t total) const override {
    return split_by_layer(layers, divide_by_scores(as_one_layer(layers), total, 0));
  }
  std::vector<int32_t> allocate(const LayerScores& layer, int64_t total) const override {
    return divide_by_scores(layer, total, 0);
  }

 private:
  int window_;
  float echo_;
};

std::unique_ptr<Allocator> make(const OptionValues& options) { return std::make_unique<ErrorDriven>(options); }

}  // namespace

Method allocator_error() {
  return {.info = {.name = "error",
                   .summary = "rows go where leaving them out would change the output most, over all heads and layers",
                   .source = "the single-row effect of DropKV, OpenReview MqfNzH3TVH; the division is ours",
                   .options = {integer_option("window", "32", {1, 1024}, "last queries whose outputs are looked at"),
                               real_option("echo", "0", {0, 1000}, "weight of a row's echo beside its error")}},
          .cost = "window * n * head_dim",
          .make_allocator = make};
}

}  // namespace kedge::eviction
