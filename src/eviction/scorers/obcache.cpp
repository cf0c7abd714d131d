// OBCache: optimal brain cache (arXiv 2510.07651). The second-order change of the outputs when a row's value, its key
// or both are zeroed, with l = q.k/sqrt(head_dim), summed over the window's queries and the group's heads:
//   term=v    a^2 ||v||^2
//   term=k    (a l)^2 ||v - y||^2
//   term=vk   a^2 ||v||^2 + (a l)^2 ||v - y||^2 + 2 a^2 l (||v||^2 - v.y)   =   a^2 ||v + l (v - y)||^2
// The last equation is ours: no subtraction of large terms, never negative. The authors sum over as many queries as
// rows are protected (both 32 here) and smooth the scores for their SnapKV form (pool, max of 7); without it is their
// H2O form, the default. Their lists belong to query heads; the sum over a group is ours.
#include "base/check.h"
#include "eviction/options.h"
#include "eviction/row_math.h"
#include "eviction/window_scorer.h"

namespace kedge::eviction {
namespace {

enum class Term { v, k, vk };

class ObCache final : public WindowScorer {
 public:
  ObCache(int window, int pool, Term term) : WindowScorer(window), pool_(pool), term_(term) {}

  void add_queries(const HeadInput& in, int begin, int end, std::span<float> sum) const override {
    check(in.y != nullptr, "obcache needs the heads' outputs");
    std::vector<float> logits;
    for_weight_batches(in, begin, end, [&](int t, int n, std::span<float> a) {
      const ptrdiff_t first = static_cast<ptrdiff_t>(t) * in.group * in.rows.head_dim;
      if (term_ != Term::v) {
        logits.resize(a.size());
        key_products(in.rows, in.q + first, n * in.group, in.scale, logits);
      }
      for (size_t i = 0; i < a.size(); ++i) {
        const float root = term_ == Term::k ? a[i] * logits[i] : a[i];
        a[i] = root * root;
      }
      if (term_ == Term::v) {
        for (size_t i = 0; i < a.size(); ++i)
          sum[i % sum.size()] += a[i];
        return;
      }
      add_output_errors(in.rows,
                        {.y = in.y + first,
                         .n = n * in.group,
                         .weight = a.data(),
                         .lean = term_ == Term::vk ? logits.data() : nullptr,
                         .own = term_ == Term::vk ? 1.0F : 0.0F},
                        sum);
    });
  }

  void finish(const HeadInput& in, std::span<float> sum) const override {
    if (term_ == Term::v) {
      const std::vector<float> norms = row_norms(in.rows, Part::values, Norm::l2_squared);
      for (size_t i = 0; i < norms.size(); ++i)
        sum[i] *= norms[i];
    }
    max_pool(sum, pool_);
  }

 private:
  int pool_;
  Term term_;
};

std::unique_ptr<Scorer> make(const OptionValues& options) {
  const std::string& term = options.choices.at("term");
  return std::make_unique<ObCache>(static_cast<int>(options.numbers.at("window")),
                                   static_cast<int>(options.numbers.at("pool")),
                                   term == "v"   ? Term::v
                                   : term == "k" ? Term::k
                                                 : Term::vk);
}

}  // namespace

Method scorer_obcache() {
  return {.info = {.name = "obcache",
                   .summary = "second-order change of the outputs when a row's key and value are zeroed",
                   .source = "OBCache, arXiv 2510.07651",
                   .options = {integer_option("window", "32", {1, 1024}, "last queries observed"),
                               choice_option("term", {"vk", "v", "k"}, "key and value, the value or the key zeroed"),
                               odd_option("pool", "1", {1, 63}, "max-pool of the scores along the rows; 1: off")}},
          .default_allocator = "uniform",
          .default_schedule = kEveryTurn,
          .default_sinks = "0",
          .default_recent = "32",
          .aliases = {"obc"},
          .cost = "window * n * head_dim",
          .example = {"window=1", {0.3875F, 0.1649F, 0.1189F, 0.0279F, 2.3528F, 0.2967F}},
          .make_scorer = make};
}

}  // namespace kedge::eviction
