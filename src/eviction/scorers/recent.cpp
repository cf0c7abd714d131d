// Control: only the most recent rows, no sinks. Shows what the sinks of `streaming` are worth.
#include "eviction/window_scorer.h"

namespace kedge::eviction {
namespace {

class Recent final : public Scorer {
 public:
  Needs needs() const override { return {}; }
  void score(const HeadInput& in, std::span<float> score) const override { score_by_position(in, score); }
};

std::unique_ptr<Scorer> make(const OptionValues&) { return std::make_unique<Recent>(); }

}  // namespace

Method scorer_recent() {
  return {.info = {.name = "recent",
                   .summary = "only the most recent rows: a control",
                   .source = "control: a sliding window",
                   .options = {}},
          .default_allocator = "uniform",
          .default_schedule = kEveryTurn,
          .default_sinks = "0",
          .default_recent = "0",
          .cost = "n",
          .example = {"", {0, 1, 2, 3, 4, 5}},
          .make_scorer = make};
}

}  // namespace kedge::eviction
