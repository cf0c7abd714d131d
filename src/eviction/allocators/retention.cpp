// A curve over layers that the options give, higher at the start:
//   weight(depth) = end + (start - end) * (1 - depth)^power,   depth 0 at the first layer and 1 at the last
// and weights of named layers on top: `layers=0-1:3+29:0.5` gives layers 0 and 1 the weight 3 and layer 29 one half.
// Layers get rows in proportion, beyond those that sinks and recent protect by number. Names of layers that a model
// does not have say nothing.
#include <cmath>

#include "eviction/divide_rows.h"
#include "eviction/named_layers.h"
#include "eviction/options.h"

namespace kedge::eviction {
namespace {

class Retention final : public Allocator {
 public:
  explicit Retention(const OptionValues& options)
      : start_(options.numbers.at("start")),
        end_(options.numbers.at("end")),
        power_(options.numbers.at("power")),
        heads_(head_rule(options)),
        named_(read_named_layers(options.choices.at("layers"), "retention").value()) {}

  Layers layers() const override { return Layers::weighted; }
  double layer_weight(int layer, int n_layers) const override {
    if (const std::optional<double> named = weight_of(named_, layer))
      return *named;
    const double depth = n_layers > 1 ? static_cast<double>(layer) / (n_layers - 1) : 0;
    return end_ + (start_ - end_) * std::pow(1 - depth, power_);
  }
  std::vector<int32_t> allocate(const LayerScores& layer, int64_t total) const override {
    return divide_layer(heads_, layer, total);
  }

 private:
  double start_;
  double end_;
  double power_;
  HeadRule heads_;
  std::vector<NamedLayers> named_;
};

Status validate(const OptionValues& options) {
  const auto layers = read_named_layers(options.choices.at("layers"), "retention");
  return layers ? Status() : Status(layers.error());
}

std::unique_ptr<Allocator> make(const OptionValues& options) { return std::make_unique<Retention>(options); }

}  // namespace

Method allocator_retention() {
  return {.info = {.name = "retention",
                   .summary = "a curve over layers, higher at the start, and weights of named layers",
                   .source = "ours",
                   .options = {real_option("start", "1.5", {0.001, 1000}, "weight of the first layer"),
                               real_option("end", "0.5", {0.001, 1000}, "weight of the last layer"),
                               real_option("power", "1", {0.1, 10}, "shape of the curve; 1: a line, 2: falls early"),
                               text_option("layers", "-", "weights of named layers: FIRST[-LAST]:WEIGHT[+...]"),
                               head_rule_option(HeadRule::pooled)}},
          .validate = validate,
          .make_allocator = make};
}

}  // namespace kedge::eviction
