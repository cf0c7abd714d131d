// A curve over layers that the options give, higher at the start:
//   weight(depth) = end + (start - end) * (1 - depth)^power,   depth 0 at the first layer and 1 at the last
// and weights of named layers on top: `layers=0-1:3+29:0.5` gives layers 0 and 1 the weight 3 and layer 29 one half.
// Layers get rows in proportion, beyond those that sinks and recent protect by number. Names of layers that a model
// does not have say nothing.
#include <charconv>
#include <cmath>
#include <optional>

#include "eviction/divide_rows.h"
#include "eviction/options.h"
#include "eviction/registry.h"

namespace kedge::eviction {
namespace {

constexpr double kLargestWeight = 1000;

struct NamedLayers {
  int first = 0;
  int last = 0;
  double weight = 1;
};

template <typename Number>
bool read_number(std::string_view text, Number& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return !text.empty() && error == std::errc() && end == text.data() + text.size();
}

// FIRST[-LAST]:WEIGHT
std::optional<NamedLayers> read_layers(std::string_view text) {
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos)
    return std::nullopt;
  const std::string_view range = text.substr(0, colon);
  const size_t dash = range.find('-');
  NamedLayers out;
  const bool is_read = read_number(range.substr(0, dash), out.first) &&
                       (dash == std::string_view::npos || read_number(range.substr(dash + 1), out.last)) &&
                       read_number(text.substr(colon + 1), out.weight);
  if (dash == std::string_view::npos)
    out.last = out.first;
  if (!is_read || out.first < 0 || out.last < out.first || !(out.weight > 0 && out.weight <= kLargestWeight))
    return std::nullopt;
  return out;
}

// "-": none. Error usage: the piece that cannot be read.
Result<std::vector<NamedLayers>> read_all(std::string_view text) {
  std::vector<NamedLayers> out;
  while (text != "-" && !text.empty()) {
    const size_t plus = std::min(text.find('+'), text.size());
    const std::optional<NamedLayers> one = read_layers(text.substr(0, plus));
    if (!one.has_value()) {
      return Error{ErrorCode::usage, "option 'layers' of 'retention': " + quoted(text.substr(0, plus)) +
                                         " is not FIRST[-LAST]:WEIGHT with a weight above 0 and up to 1000 (several: "
                                         "joined by '+')"};
    }
    out.push_back(*one);
    text = text.substr(std::min(plus + 1, text.size()));
  }
  return out;
}

class Retention final : public Allocator {
 public:
  explicit Retention(const OptionValues& options)
      : start_(options.numbers.at("start")),
        end_(options.numbers.at("end")),
        power_(options.numbers.at("power")),
        heads_(head_rule(options)),
        named_(read_all(options.choices.at("layers")).value()) {}

  Layers layers() const override { return Layers::weighted; }
  double layer_weight(int layer, int n_layers) const override {
    for (const NamedLayers& named : named_) {
      if (layer >= named.first && layer <= named.last)
        return named.weight;
    }
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
  const auto layers = read_all(options.choices.at("layers"));
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
