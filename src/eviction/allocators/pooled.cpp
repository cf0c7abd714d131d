// The heads of a layer compete: one top-k over all their unprotected rows (Ada-KV, arXiv 2407.11550; AnDPro, OpenReview
// Tdl89SZItB, section on flattened heads). Budgets per head come out ragged. `floor` is the share of an even split that
// each head is sure of (Ada-KV uses .2, AnDPro 0).
#include "eviction/divide_rows.h"
#include "eviction/options.h"
#include "eviction/policy.h"

namespace kedge::eviction {
namespace {

class Pooled final : public Allocator {
 public:
  explicit Pooled(double floor) : floor_(floor) {}

  std::vector<int32_t> allocate(const LayerScores& layer, int64_t total) const override {
    return divide_by_scores(layer, total, floor_);
  }

 private:
  double floor_;
};

std::unique_ptr<Allocator> make(const OptionValues& options) {
  return std::make_unique<Pooled>(options.numbers.at("floor"));
}

}  // namespace

Method allocator_pooled() {
  return {.info = {.name = "pooled",
                   .summary = "one top-k over the rows of all heads of a layer",
                   .source = "Ada-KV, arXiv 2407.11550; AnDPro, OpenReview Tdl89SZItB",
                   .options = {real_option("floor", "0", {0, 1}, "share of an even split that each head is sure of")}},
          .make_allocator = make};
}

}  // namespace kedge::eviction
