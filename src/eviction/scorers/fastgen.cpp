// FastGen (ICLR 2024, arXiv 2310.01801): a ladder of policies, each holding what the one before holds:
//   special tokens < + punctuation < + frequent rows < + local rows < all rows
// frequent: the share `frequent` of the rows with most attention from all queries; local: the share `local` of the
// newest. A row's score is the step that first takes it in (4 special, 3, 2, 1, 0 the rest) plus a part below 1 that
// orders the step: attention received, for local rows the position. So any number of rows is a prefix of the ladder,
// and how far a head climbs is the allocator's choice: the paper's profile, the first step that recovers .95 of the
// attention of the profiled queries, is `fastgen` among the allocators, for each kv head by its group's largest need.
#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "eviction/options.h"

namespace kedge::eviction {
namespace {

class FastGen final : public Scorer {
 public:
  explicit FastGen(const OptionValues& options)
      : frequent_(options.numbers.at("frequent")), local_(options.numbers.at("local")) {}
  Needs needs() const override { return {.attention_sum = true, .tokens = true}; }

  void score(const HeadInput& in, std::span<float> score) const override {
    const size_t n = score.size();
    check(in.attention_sum.size() == n, "fastgen needs the rows' attention sums");
    check(in.token_kinds.size() >= static_cast<size_t>(in.n_tokens), "fastgen needs the tokens' kinds");
    std::vector<size_t> order(n);  // most attention first
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, [&](size_t a, size_t b) { return in.attention_sum[a] > in.attention_sum[b]; });
    const auto n_frequent = static_cast<size_t>(frequent_ * static_cast<double>(n) + 0.5);
    const auto n_local = static_cast<size_t>(local_ * static_cast<double>(n) + 0.5);
    for (size_t rank = 0; rank < n; ++rank) {
      const size_t i = order[rank];
      const auto position = static_cast<size_t>(in.rows.position(static_cast<int32_t>(i)));
      const uint8_t kind = in.token_kinds[position];
      const auto by_attention = static_cast<float>(n - 1 - rank) / static_cast<float>(n);
      const auto by_position = static_cast<float>(position) / static_cast<float>(in.n_tokens);
      if ((kind & kSpecialToken) != 0)
        score[i] = 4 + by_attention;
      else if ((kind & kPunctuationToken) != 0)
        score[i] = 3 + by_attention;
      else if (rank < n_frequent)
        score[i] = 2 + by_attention;
      else if (i + n_local >= n)
        score[i] = 1 + by_position;
      else
        score[i] = by_attention;
    }
  }

 private:
  double frequent_, local_;
};

std::unique_ptr<Scorer> make(const OptionValues& options) { return std::make_unique<FastGen>(options); }

}  // namespace

Method scorer_fastgen() {
  return {.info = {.name = "fastgen",
                   .summary = "special tokens, then punctuation, then frequent rows, then local ones",
                   .source = "FastGen, ICLR 2024, arXiv 2310.01801",
                   .options = {real_option("frequent", "0.3", {0, 1}, "share of the rows with most attention"),
                               real_option("local", "0.3", {0, 1}, "share of the newest rows")}},
          .default_allocator = "uniform",
          .default_schedule = kEveryTurn,
          .default_sinks = "4",  // many texts have no BOS, the special token that matters most
          .default_recent = "30%",
          .aliases = {"fast_gen", "fast-gen"},
          .cost = "n log n; every query's attention is computed once more when it is read",
          .example = {"", {4.8333F, 3.6667F, 0.5F, 0.1667F, 1.6667F, 1.8333F}},
          .make_scorer = make};
}

}  // namespace kedge::eviction
