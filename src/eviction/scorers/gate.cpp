// Gate: what a network that was trained for the model says of each row, when it was written (gate/gate.h):
//   score[i] = 1 / (1 + exp(-logit[i]))
// the probability that the row will be needed. After KVzap (arXiv 2601.07891): the row behind the attention's norm
// predicts better than its key and value. Needs --gate FILE.
#include <cmath>

#include "base/check.h"
#include "eviction/options.h"
#include "eviction/window_scorer.h"

namespace kedge::eviction {
namespace {

class Gated final : public Scorer {
 public:
  Needs needs() const override { return {.gate = true}; }
  void score(const HeadInput& in, std::span<float> score) const override {
    check(in.gate.size() == score.size(), "the gate has said something of every row");
    for (size_t i = 0; i < score.size(); ++i)
      score[i] = 1.0F / (1.0F + std::exp(-in.gate[i]));
  }
};

std::unique_ptr<Scorer> make(const OptionValues& /*options*/) { return std::make_unique<Gated>(); }

}  // namespace

Method scorer_gate() {
  return {.info = {.name = "gate",
                   .summary = "a network trained for the model says which rows will be needed",
                   .source = "ours; after KVzap, arXiv 2601.07891",
                   .options = {}},
          .default_allocator = "error:window=32",
          .default_schedule = kEveryTurn,
          .default_sinks = "4",
          .default_recent = "45%",
          .cost = "n; the network once for each token",
          .example = {"", {0.8808F, 0.3775F, 0.7311F, 0.1824F, 0.5F, 0.0474F}},
          .make_scorer = make};
}

}  // namespace kedge::eviction
