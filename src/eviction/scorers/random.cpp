// Control: rows drawn at random, the same for the same seed, layer, head and position (so that a row's luck does not
// change from one eviction to the next, nor with the number of threads).
#include "eviction/draw.h"

namespace kedge::eviction {
namespace {

class Random final : public Scorer {
 public:
  Needs needs() const override { return {}; }
  void score(const HeadInput& in, std::span<float> score) const override {
    for (int32_t i = 0; i < in.rows.n_rows; ++i) {
      score[static_cast<size_t>(i)] = draw(in, static_cast<uint64_t>(in.rows.position(i)));
    }
  }
};

std::unique_ptr<Scorer> make(const OptionValues&) { return std::make_unique<Random>(); }

}  // namespace

Method scorer_random() {
  return {.info = {.name = "random",
                   .summary = "rows drawn at random: a control",
                   .source = "control: a hash of seed, layer, head and position",
                   .options = {}},
          .default_allocator = "uniform",
          .default_schedule = kEveryTurn,
          .default_sinks = "0",
          .default_recent = "0",
          .cost = "n",
          .example = {"", {0.1387F, 0.1844F, 0.6975F, 0.3212F, 0.4455F, 0.4433F}},
          .make_scorer = make};
}

}  // namespace kedge::eviction
