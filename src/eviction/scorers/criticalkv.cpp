// CriticalKV (arXiv 2502.03805), as kvpress 0.5: another scorer's scores, weighed by what a row's value can do.
//   stage 1: the best first_stage * k rows by base[i] stay, k the rows a head may keep (protected rows are the first)
//   stage 2: the others compete by (base[i] + epsilon) * N[i],   N[i] = mean over the group's heads of ||W_O v[i]||_1
// base: any scorer that evicts, with its defaults (kvpress: any ScorerPress); its rows compete singly, also where the
// base has chunks, and each kv head has its own list, also where the base has one for the layer. Made for scores that
// are not negative, such as attention: below 0 a larger N lowers a row, here as in kvpress.
// With `pooled` heads share what stage 2 leaves, and each is sure of its stage 1: half of an even split by default.
// kvpress's CriticalAdaKV first divides the rows by the base's scores.
#include <algorithm>
#include <cmath>

#include "eviction/options.h"
#include "eviction/row_math.h"
#include "eviction/wrapper.h"

namespace kedge::eviction {
namespace {

class CriticalKv final : public Wrapper {
 public:
  CriticalKv(std::unique_ptr<Scorer> base, const OptionValues& options)
      : Wrapper(std::move(base)),
        first_stage_(options.numbers.at("first_stage")),
        epsilon_(static_cast<float>(options.numbers.at("epsilon"))) {}
  Needs needs() const override { return Wrapper::needs() | Needs{.values = true, .output_weights = true}; }

 protected:
  void rescore(const HeadInput& in, std::span<float> score) const override {
    std::vector<size_t> order;  // rows that are not protected
    for (size_t i = 0; i < score.size(); ++i) {
      if (in.is_protected.empty() || in.is_protected[i] == 0)
        order.push_back(i);
    }
    const size_t n_first = first_rows(in.n_keep, score.size() - order.size(), order.size());
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return score[a] > score[b]; });
    const std::vector<float> norms = projected_norms(in);
    float most = 0;
    for (size_t i = 0; i < score.size(); ++i) {
      score[i] = (score[i] + epsilon_) * norms[i];
      most = std::max(most, std::abs(score[i]));
    }
    for (size_t rank = 0; rank < n_first; ++rank)  // above all others, in the base's order
      score[order[rank]] = (most + 1) * (2 - static_cast<float>(rank) / static_cast<float>(n_first));
  }

 private:
  // Rows of stage 1 that are not protected anyway. As kvpress: whole part, but one row at least.
  size_t first_rows(int32_t n_keep, size_t n_protected, size_t n_free) const {
    if (first_stage_ <= 0 || n_keep <= 0)
      return 0;
    const size_t n = std::max<size_t>(static_cast<size_t>(n_keep * first_stage_), 1);
    return std::min(n - std::min(n, n_protected), n_free);
  }

  double first_stage_;
  float epsilon_;
};

std::unique_ptr<Scorer> make(const OptionValues& options) {
  return std::make_unique<CriticalKv>(make_base(options), options);
}

}  // namespace

Method scorer_criticalkv() {
  return {.info = {.name = "criticalkv",
                   .summary = "another scorer's scores times the size of the projected value, in two stages",
                   .source = "CriticalKV, arXiv 2502.03805; as kvpress 0.5",
                   .options = {base_option("snapkv"),
                               real_option("first_stage", "0.5", {0, 1}, "share of the rows chosen by the base alone"),
                               real_option("epsilon", "1e-4", {0, 1}, "added to the base's scores")}},
          .default_allocator = "uniform",
          .default_schedule = kEveryTurn,
          .default_sinks = "0",
          .default_recent = "32",
          .aliases = {"critical_kv", "critical-kv", "critical"},
          .cost = "group * n * head_dim * n_embd",
          .example = {"base=tova,epsilon=0", {0.3087F, 0.4544F, 0.3408F, 0.1671F, 1.2348F, 0.568F}},
          .validate = check_base,
          .make_scorer = make};
}

}  // namespace kedge::eviction
