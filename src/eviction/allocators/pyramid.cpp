// PyramidKV (arXiv 2406.02069): rows per layer fall linearly with depth, around the mean B:
//   last layer B / beta, first layer 2 B - B / beta
// B counts the rows beyond those that sinks and recent protect by number, as the paper's window is kept in every layer.
// The paper gives every head of a layer the same; `heads=pooled` lets them compete.
#include "eviction/divide_rows.h"
#include "eviction/options.h"
#include "eviction/policy.h"

namespace kedge::eviction {
namespace {

class Pyramid final : public Allocator {
 public:
  explicit Pyramid(const OptionValues& options) : beta_(options.numbers.at("beta")), heads_(head_rule(options)) {}

  Layers layers() const override { return Layers::weighted; }
  double layer_weight(int layer, int n_layers) const override {
    const double depth = n_layers > 1 ? static_cast<double>(layer) / (n_layers - 1) : 0.5;
    const double last = 1 / beta_;
    const double first = 2 - last;
    return first + depth * (last - first);
  }
  std::vector<int32_t> allocate(const LayerScores& layer, int64_t total) const override {
    return divide_layer(heads_, layer, total);
  }

 private:
  double beta_;
  HeadRule heads_;
};

std::unique_ptr<Allocator> make(const OptionValues& options) { return std::make_unique<Pyramid>(options); }

}  // namespace

Method allocator_pyramid() {
  return {.info = {.name = "pyramid",
                   .summary = "rows per layer fall linearly with depth",
                   .source = "PyramidKV, arXiv 2406.02069",
                   .options = {real_option("beta", "20", {1, 1000}, "the last layer gets 1/beta of the mean; 1: equal"),
                               head_rule_option(HeadRule::uniform)}},
          .aliases = {"pyramidkv"},
          .make_allocator = make};
}

}  // namespace kedge::eviction
