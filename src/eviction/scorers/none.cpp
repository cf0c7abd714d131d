// Control: evicts nothing, through the same path as every other policy.
#include <algorithm>

#include "eviction/window_scorer.h"

namespace kedge::eviction {
namespace {

class None final : public Scorer {
 public:
  Needs needs() const override { return {}; }
  void score(const HeadInput& in, std::span<float> score) const override {
    std::fill(score.begin(), score.begin() + in.rows.n_rows, 0.0F);
  }
};

std::unique_ptr<Scorer> make(const OptionValues&) { return std::make_unique<None>(); }

}  // namespace

Method scorer_none() {
  return {.info = {.name = "none",
                   .summary = "evicts nothing: the full cache",
                   .source = "control: the full cache",
                   .options = {}},
          .default_allocator = "uniform",
          .default_schedule = "after-prompt",
          .default_sinks = "0",
          .default_recent = "0",
          .aliases = {"no_press", "full"},
          .evicts = false,
          .cost = "n",
          .example = {"", {0, 0, 0, 0, 0, 0}},
          .make_scorer = make};
}

}  // namespace kedge::eviction
