// Rows per head follow how well the head's output agrees with its anchor, the running mean of its outputs before:
//   c = mean over the window's queries t (but the first), g of cos(y[t,g], mean over s < t of y[s,g])
//   weight = least + (1 - least) * max(c, 0)^power
// A head whose output keeps one direction is what the anchor of AnDPro (OpenReview Tdl89SZItB) predicts well; one whose
// output turns with every query is not held by any set of rows. `power=0` is `uniform`.
#include <algorithm>
#include <cmath>

#include "eviction/divide_rows.h"
#include "eviction/options.h"

namespace kedge::eviction {
namespace {

class AnchorCorrelation final : public Allocator {
 public:
  explicit AnchorCorrelation(const OptionValues& options)
      : window_(static_cast<int>(options.numbers.at("window"))),
        least_(options.numbers.at("least")),
        power_(options.numbers.at("power")) {}

  Needs needs() const override { return {.window = window_}; }

  double measure(const HeadInput& in) const override {
    if (in.n_window < 2 || in.y == nullptr)
      return 1;
    const auto dim = static_cast<size_t>(in.rows.head_dim);
    const auto group = static_cast<size_t>(in.group);
    double sum = 0;
    for (size_t g = 0; g < group; ++g) {
      std::vector<double> before(dim, 0.0);  // sum of the outputs so far
      for (size_t t = 0; t < static_cast<size_t>(in.n_window); ++t) {
        const float* y = in.y + (t * group + g) * dim;
        double product = 0;
        double size = 0;
        double anchor = 0;
        for (size_t j = 0; j < dim; ++j) {
          product += y[j] * before[j];
          size += double{y[j]} * y[j];
          anchor += before[j] * before[j];
          before[j] += y[j];
        }
        sum += size > 0 && anchor > 0 ? product / std::sqrt(size * anchor) : 0;
      }
    }
    return sum / static_cast<double>(group * static_cast<size_t>(in.n_window - 1));
  }
  std::vector<int32_t> allocate(const LayerScores& layer, int64_t total) const override {
    std::vector<double> weights;
    for (const double one : layer.measured)
      weights.push_back(least_ + (1 - least_) * std::pow(std::max(one, 0.0), power_));
    return divide_by_weight(layer, weights, total);
  }

 private:
  int window_;
  double least_;
  double power_;
};

std::unique_ptr<Allocator> make(const OptionValues& options) { return std::make_unique<AnchorCorrelation>(options); }

}  // namespace

Method allocator_anchor() {
  return {.info = {.name = "anchor",
                   .summary = "rows per head follow the correlation of the head's output with its anchor",
                   .source = "AnDPro, OpenReview Tdl89SZItB, for the anchor; the rule is ours",
                   .options = {integer_option("window", "32", {1, 1024}, "last queries whose outputs are looked at"),
                               real_option("least", "0.2", {0, 1}, "weight of a head without correlation"),
                               real_option("power", "1", {0, 16}, "correlation counts to this power")}},
          .cost = "window * head_dim",
          .make_allocator = make};
}

}  // namespace kedge::eviction
