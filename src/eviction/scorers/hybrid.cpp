// Hybrid (ours; its gate after KVzap, arXiv 2601.07891): what a gate learned of rows and what another scorer sees of
// them now, added:
//   score[i] = max(base[i], 0) / mean(max(base, 0)) + weight * e[i] / mean(e),   e[i] = exp(logit[i])
// e is what the gate was fitted to, a largest attention times what the value can do (gate/gate.h); means are over the
// unprotected rows of the head. The two see different things: the gate knows what kind of row it is before any query
// asks for it, the base what was asked. base: any scorer that evicts, with its defaults.
#include <algorithm>
#include <cmath>

#include "eviction/ageing.h"
#include "eviction/options.h"
#include "eviction/row_math.h"
#include "eviction/wrapper.h"

namespace kedge::eviction {
namespace {

class Hybrid final : public Wrapper {
 public:
  Hybrid(std::unique_ptr<Scorer> base, const OptionValues& options)
      : Wrapper(std::move(base)), weight_(options.numbers.at("weight")), asking_(options.gate) {}
  Needs needs() const override { return Wrapper::needs() | asking_; }
  // A base that observes fewer queries than the gate must cut the window itself: score() does.
  bool splits_by_query() const override { return asking_.window == 0 && Wrapper::splits_by_query(); }
  bool needs_whole_window() const override { return Wrapper::needs_whole_window() || asking_.window > 0; }

 protected:
  void rescore(const HeadInput& in, std::span<float> score) const override {
    std::vector<float> learned = learned_logits(in);
    for (size_t i = 0; i < score.size(); ++i) {
      learned[i] = std::exp(std::min(learned[i], kMostLogit));
      score[i] = std::max(score[i], 0.0F);
    }
    const double seen = unit_mean(in, score);
    const double known = weight_ * unit_mean(in, learned);
    for (size_t i = 0; i < score.size(); ++i)
      score[i] = static_cast<float>(seen * score[i] + known * learned[i]);
  }

 private:
  static constexpr float kMostLogit = 30;  // e^30 rows' worth: a sum of them stays finite

  double weight_;
  Needs asking_;
};

std::unique_ptr<Scorer> make(const OptionValues& options) {
  return std::make_unique<Hybrid>(make_base(options), options);
}

}  // namespace

Method scorer_hybrid() {
  return {.info = {.name = "hybrid",
                   .summary = "a learned gate and another scorer, each in units of its mean, added",
                   .source = "ours",
                   .options = {base_option("echo"), real_option("weight", "0.2", {0, 1000}, "of the gate")}},
          .default_allocator = "error:echo=0.1",
          .default_schedule = kEveryTurn,
          .default_sinks = "4",
          .default_recent = "25%",
          .cost = "the base's, and n",
          .example = {"base=h2o,weight=1", {5.41F, 1.399F, 2.387F, 0.5679F, 1.869F, 0.3671F}},
          .validate = check_base,
          .make_scorer = make};
}

}  // namespace kedge::eviction
