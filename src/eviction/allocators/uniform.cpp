// The same number of rows for every kv head of a layer, as far as its protected rows and its length allow. Heads that
// have fewer rows leave their share to the others.
#include "eviction/divide_rows.h"
#include "eviction/policy.h"

namespace kedge::eviction {
namespace {

class Uniform final : public Allocator {
 public:
  std::vector<int32_t> allocate(const LayerScores& layer, int64_t total) const override {
    return divide_evenly(layer, total);
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
