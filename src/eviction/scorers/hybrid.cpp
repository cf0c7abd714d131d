// Hybrid (ours; its gate after KVzap, arXiv 2601.07891): what a gate learned of rows and what another scorer sees of
// them now, with b[i] = max(base[i], 0) / mean(max(base, 0)) and e[i] = exp(logit[i]):
//   mix=sum       score[i] = b[i] + weight * e[i] / mean(e)
//   mix=product   score[i] = logit[i] + weight * log(max(b[i], 1e-3)),   which orders rows as e[i] * b[i]^weight does
// Means are over the unprotected rows of the head. sum is for gates that were fitted to labels, where e is a largest
// attention times what the value can do (gate/gate.h); product leaves the logits on their scale, which a gate that
// ranks the rows of all heads has learned. The two see different things: the gate knows what kind of row it is before
// any query asks for it, the base what was asked. base: any scorer that evicts, with its defaults. Of a gate whose file
// says that it ranks the rows of all heads the bare name means hybrid:base=andpro,mix=product/pooled-all:norm=none.
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
      : Wrapper(std::move(base)),
        weight_(options.numbers.at("weight")),
        product_(options.choices.at("mix") == "product"),
        asking_(options.gate) {}
  Needs needs() const override { return Wrapper::needs() | asking_; }
  // A base that observes fewer queries than the gate must cut the window itself: score() does.
  bool splits_by_query() const override { return asking_.window == 0 && Wrapper::splits_by_query(); }
  bool needs_whole_window() const override { return Wrapper::needs_whole_window() || asking_.window > 0; }

 protected:
  void rescore(const HeadInput& in, std::span<float> score) const override {
    std::vector<float> learned = learned_logits(in);
    for (float& one : score)
      one = std::max(one, 0.0F);
    const double seen = unit_mean(in, score);
    if (product_) {
      for (size_t i = 0; i < score.size(); ++i)
        score[i] = static_cast<float>(learned[i] + weight_ * std::log(std::max(seen * score[i], kLeastShare)));
      return;
    }
    for (float& one : learned)
      one = std::exp(std::min(one, kMostLogit));
    const double known = weight_ * unit_mean(in, learned);
    for (size_t i = 0; i < score.size(); ++i)
      score[i] = static_cast<float>(seen * score[i] + known * learned[i]);
  }

 private:
  static constexpr float kMostLogit = 30;  // e^30 rows' worth: a sum of them stays finite
  static constexpr double kLeastShare = 1e-3;

  double weight_;
  bool product_;
  Needs asking_;
};

std::unique_ptr<Scorer> make(const OptionValues& options) {
  return std::make_unique<Hybrid>(make_base(options), options);
}

}  // namespace

Method scorer_hybrid() {
  return {
      .info = {.name = "hybrid",
               .summary = "a learned gate and another scorer, mixed",
               .source = "ours",
               .options = {base_option("echo"), choice_option("mix", {"sum", "product"}, "how the two come together"),
                           real_option("weight", "0.2", {0, 1000}, "of the gate; of the base with mix=product")}},
      .default_allocator = "error:echo=0.1",
      .default_schedule = kEveryTurn,
      .default_sinks = "4",
      .default_recent = "25%",
      .model_wide = {.allocator = "pooled-all:norm=none", .options = {{"base", "andpro"}, {"mix", "product"}}},
      .cost = "the base's, and n",
      .example = {"base=h2o,weight=1", {5.41F, 1.399F, 2.387F, 0.5679F, 1.869F, 0.3671F}},
      .validate = check_base,
      .make_scorer = make};
}

}  // namespace kedge::eviction
