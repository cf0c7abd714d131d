// Gate: what a network that was trained for the model says of each row, when it was written (gate/gate.h) or, where the
// gate has an ageing stage (gate/ageing.h), at every eviction anew:
//   score[i] = 1 / (1 + exp(-logit[i]))
// the probability that the row will be needed. After KVzap (arXiv 2601.07891): the row behind the attention's norm
// predicts better than its key and value. Needs --gate FILE. Of a gate whose file says that its logits rank the rows of
// all heads together, as those do that are taught through the model, the bare name means
// gate:recent=25%/pooled-all:norm=none, and it is the default policy.
#include <cmath>

#include "eviction/ageing.h"
#include "eviction/options.h"

namespace kedge::eviction {
namespace {

class Gated final : public Scorer {
 public:
  explicit Gated(const Needs& asking) : asking_(asking) {}
  Needs needs() const override { return asking_; }
  bool needs_whole_window() const override { return asking_.window > 0; }
  void score(const HeadInput& in, std::span<float> score) const override {
    const std::vector<float> logit = learned_logits(in);
    for (size_t i = 0; i < score.size(); ++i)
      score[i] = 1.0F / (1.0F + std::exp(-logit[i]));
  }
  std::vector<ScorePart> explain(const HeadInput& in, std::span<const float> /*score*/) const override {
    return in.ageing == nullptr ? std::vector<ScorePart>() : ageing_parts(in);
  }

 private:
  Needs asking_;
};

std::unique_ptr<Scorer> make(const OptionValues& options) { return std::make_unique<Gated>(options.gate); }

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
          .model_wide = {.allocator = "pooled-all:norm=none", .options = {{"recent", "25%"}}},
          .cost = "n; the network once for each token",
          .example = {"", {0.8808F, 0.3775F, 0.7311F, 0.1824F, 0.5F, 0.0474F}},
          .make_scorer = make};
}

}  // namespace kedge::eviction
