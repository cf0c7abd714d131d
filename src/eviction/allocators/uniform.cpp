// The same number of rows for every kv head of a layer, as far as its protected rows and its length allow. Heads that
// have fewer rows leave their share to the others.
#include "eviction/compete.h"
#include "eviction/policy.h"

namespace kedge::eviction {
namespace {

class Uniform final : public Allocator {
 public:
  std::vector<int32_t> allocate(const LayerScores& layer, int64_t total) const override {
    std::vector<int32_t> lo;
    std::vector<int32_t> hi;
    for (size_t h = 0; h < layer.score.size(); ++h) {
      lo.push_back(minimum_rows(layer.is_protected[h], layer.score[h].size()));
      hi.push_back(static_cast<int32_t>(layer.score[h].size()));
    }
    return level_fill(lo, hi, total);
  }
};

std::unique_ptr<Allocator> make(const OptionValues&) { return std::make_unique<Uniform>(); }

}  // namespace

Method allocator_uniform() {
  return {.info = {.name = "uniform",
                   .summary = "the same rows for every head of a layer",
                   .source = "every fixed-budget method",
                   .options = {}},
          .make_allocator = make};
}

}  // namespace kedge::eviction
