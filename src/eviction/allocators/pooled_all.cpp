// The rows of all heads of all layers compete in one top-k (the flattened form of Ada-KV, arXiv 2407.11550, and AnDPro,
// OpenReview Tdl89SZItB, taken over layers too). Scores of different layers have different sizes, so each layer's are
// divided by one number, measured once over its unprotected rows:
//   norm=mean   the mean of |score|: a layer's rows get the same sum
//   norm=top    the largest |score|
//   norm=none   1: layers with large outputs win
// `floor` is the share of an even split that each head of each layer is sure of.
#include <algorithm>
#include <cmath>

#include "eviction/divide_rows.h"
#include "eviction/options.h"
#include "eviction/policy.h"

namespace kedge::eviction {
namespace {

enum class Norm { mean, top, none };

class PooledAll final : public Allocator {
 public:
  PooledAll(double floor, Norm norm) : floor_(floor), norm_(norm) {}

  Layers layers() const override { return Layers::shared; }

  double demand(const LayerScores& layer) const override {
    double sum = 0;
    double top = 0;
    int64_t n = 0;
    for (size_t h = 0; h < layer.score.size(); ++h) {
      for (size_t i = 0; i < layer.score[h].size(); ++i) {
        if (layer.is_protected[h][i] != 0 || !std::isfinite(layer.score[h][i]))
          continue;
        const double size = std::abs(double{layer.score[h][i]});
        sum += size;
        top = std::max(top, size);
        ++n;
      }
    }
    const double size = norm_ == Norm::none  ? 1
                        : norm_ == Norm::top ? top
                                             : sum / static_cast<double>(std::max<int64_t>(n, 1));
    return size > 0 && std::isfinite(size) ? size : 1;
  }

  std::vector<std::vector<int32_t>> allocate_layers(std::span<const LayerScores> layers, int64_t total) const override {
    std::vector<std::vector<float>> normalised;
    LayerScores all = as_one_layer(layers);
    for (const LayerScores& layer : layers) {
      for (const std::span<const float> score : layer.score) {
        auto& out = normalised.emplace_back(score.begin(), score.end());
        for (float& value : out)
          value = static_cast<float>(value / layer.demand);
      }
    }
    for (size_t h = 0; h < all.score.size(); ++h)
      all.score[h] = normalised[h];
    return split_by_layer(layers, divide_by_scores(all, total, floor_));
  }

  std::vector<int32_t> allocate(const LayerScores& layer, int64_t total) const override {
    return divide_by_scores(layer, total, floor_);
  }

 private:
  double floor_;
  Norm norm_;
};

std::unique_ptr<Allocator> make(const OptionValues& options) {
  const std::string& norm = options.choices.at("norm");
  return std::make_unique<PooledAll>(options.numbers.at("floor"), norm == "mean"  ? Norm::mean
                                                                  : norm == "top" ? Norm::top
                                                                                  : Norm::none);
}

}  // namespace

Method allocator_pooled_all() {
  return {.info = {.name = "pooled-all",
                   .summary = "one top-k over the rows of all heads of all layers",
                   .source = "Ada-KV, arXiv 2407.11550, and AnDPro, OpenReview Tdl89SZItB, over layers too",
                   .options = {real_option("floor", "0", {0, 1}, "share of an even split that each head is sure of"),
                               choice_option("norm", {"mean", "top", "none"}, "what a layer's scores are divided by")}},
          .make_allocator = make};
}

}  // namespace kedge::eviction
