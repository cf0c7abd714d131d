// Layers share by how their attention is spread and how it moves (CAKE, ICLR 2025, arXiv 2503.12491). Over the window's
// queries t of a query head, and the rows i before the window:
//   H = mean over t of - sum_i a log a          how wide a query looks
//   V = sum over i of the variance over t of a  how much that changes from query to query
//   preference = H^(1/tau1) * V^(1/tau2)        mean over the heads of the layer; layers get rows in proportion
// The paper sums H and V over heads before it takes the powers; here they are taken per kv head. It tunes tau for each
// model. `floor` is the share of an even split that each layer is sure of.
#include <algorithm>
#include <cmath>

#include "eviction/compete.h"
#include "eviction/divide_rows.h"
#include "eviction/options.h"
#include "eviction/window_scorer.h"

namespace kedge::eviction {
namespace {

class Entropy final : public Allocator {
 public:
  explicit Entropy(const OptionValues& options)
      : window_(static_cast<int>(options.numbers.at("window"))),
        tau1_(options.numbers.at("tau1")),
        tau2_(options.numbers.at("tau2")),
        floor_(options.numbers.at("floor")),
        heads_(head_rule(options)) {}

  Needs needs() const override { return {.window = window_, .values = true}; }
  Layers layers() const override { return Layers::shared; }

  double measure(const HeadInput& in) const override {
    size_t n_before = 0;
    while (in.n_window > 1 && n_before < static_cast<size_t>(in.rows.n_rows) &&
           in.rows.position(static_cast<int32_t>(n_before)) < in.query_positions[0])
      ++n_before;
    if (n_before == 0)
      return 0;
    const auto n_rows = static_cast<size_t>(in.rows.n_rows);
    const auto group = static_cast<size_t>(in.group);
    std::vector<double> sum(group * n_before, 0.0);
    std::vector<double> squares(group * n_before, 0.0);
    double width = 0;
    for_weight_batches(in, 0, in.n_window, [&](int, int n, std::span<float> a) {
      for (size_t m = 0; m < static_cast<size_t>(n) * group; ++m) {
        for (size_t i = 0; i < n_before; ++i) {
          const double weight = a[m * n_rows + i];
          sum[m % group * n_before + i] += weight;
          squares[m % group * n_before + i] += weight * weight;
          width -= weight > 0 ? weight * std::log(weight) : 0;
        }
      }
    });
    const double n = in.n_window;
    double variance = 0;
    for (size_t i = 0; i < sum.size(); ++i)
      variance += std::max(squares[i] - sum[i] * sum[i] / n, 0.0) / (n - 1);
    const auto heads = static_cast<double>(group);
    return std::pow(width / (n * heads), 1 / tau1_) * std::pow(variance / heads, 1 / tau2_);
  }
  double demand(const LayerScores& layer) const override {
    double sum = 0;
    for (const double one : layer.measured)
      sum += one;
    return sum > 0 && std::isfinite(sum) ? sum / static_cast<double>(layer.measured.size()) : 1e-9;
  }

  std::vector<std::vector<int32_t>> allocate_layers(std::span<const LayerScores> layers, int64_t total) const override {
    std::vector<Part> parts;
    std::vector<int32_t> minimum;
    std::vector<int32_t> sure;
    const double share = floor_ * static_cast<double>(total) / static_cast<double>(std::max<size_t>(layers.size(), 1));
    for (const LayerScores& layer : layers) {
      Part part = part_of(layer);
      part.weight = layer.demand;
      minimum.push_back(part.lo);
      sure.push_back(std::max(part.lo, static_cast<int32_t>(std::clamp<double>(share, 0, part.hi))));
      parts.push_back(part);
    }
    const std::vector<int32_t> lo = level_fill(minimum, sure, total);
    for (size_t l = 0; l < parts.size(); ++l)
      parts[l].lo = std::max(lo[l], 0);
    const std::vector<int32_t> rows = divide_by_weight(parts, total);
    std::vector<std::vector<int32_t>> out;
    for (size_t l = 0; l < layers.size(); ++l)
      out.push_back(divide_layer(heads_, layers[l], rows[l]));
    return out;
  }
  std::vector<int32_t> allocate(const LayerScores& layer, int64_t total) const override {
    return divide_layer(heads_, layer, total);
  }

 private:
  int window_;
  double tau1_;
  double tau2_;
  double floor_;
  HeadRule heads_;
};

std::unique_ptr<Allocator> make(const OptionValues& options) { return std::make_unique<Entropy>(options); }

}  // namespace

Method allocator_entropy() {
  return {.info = {.name = "entropy",
                   .summary = "layers share by the entropy of their attention and its change from query to query",
                   .source = "CAKE, ICLR 2025, arXiv 2503.12491",
                   .options = {integer_option("window", "32", {1, 1024}, "last queries that are observed"),
                               real_option("tau1", "1.6", {0.1, 100}, "entropy counts to the power of 1/tau1"),
                               real_option("tau2", "0.6", {0.1, 100}, "variance counts to the power of 1/tau2"),
                               real_option("floor", "0", {0, 1}, "share of an even split that each layer is sure of"),
                               head_rule_option(HeadRule::uniform)}},
          .aliases = {"cake"},
          .cost = "window * n * head_dim",
          .make_allocator = make};
}

}  // namespace kedge::eviction
