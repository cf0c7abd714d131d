// Expected Attention (arXiv 2510.00636): the attention that the next queries will pay, if they are drawn from a normal
// distribution with the moments of the queries so far. Per query head, before rotation: mean m, covariance S. R is the
// mean rotation of the next `future` positions, s the attention scale:
//   l[i] = s * k[i].(R m) + s^2 / 2 * k[i].(R S R^T k[i])
//   score[i] = (mean over the group of softmax(l)[i] + epsilon) * ||v[i]||_2
// As in kvpress, the moments leave out the queries of the first four positions (session/observations.h), and the
// softmax the sinks: here the protected rows at the front.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "eviction/future_queries.h"
#include "eviction/options.h"
#include "eviction/window_scorer.h"

namespace kedge::eviction {
namespace {

class Expected final : public Scorer {
 public:
  explicit Expected(const OptionValues& options)
      : future_(static_cast<int>(options.numbers.at("future"))),
        epsilon_(static_cast<float>(options.numbers.at("epsilon"))),
        with_covariance_(options.choices.at("covariance") == "on"),
        with_norm_(options.choices.at("vnorm") == "on") {}
  Needs needs() const override { return {.values = true, .query_moments = true}; }

  void score(const HeadInput& in, std::span<float> score) const override {
    check(in.moments != nullptr && in.rotation != nullptr, "expected attention needs moments");
    if (in.moments->n_queries == 0)
      return score_by_position(in, score);
    const size_t d = static_cast<size_t>(in.rows.head_dim);
    std::vector<float> keys(score.size() * d), values(keys.size());
    read_rows(in.rows, 0, in.rows.n_rows, keys.data(), values.data());
    const Turns turns = mean_turns(in, future_);
    std::fill(score.begin(), score.end(), 0.0F);
    for (int g = 0; g < in.group; ++g)
      add_softmax(in, logits(in, future_queries(in, g, turns), keys), score);
    for (size_t i = 0; i < score.size(); ++i) {
      double square = 0;
      for (size_t j = 0; j < d; ++j)
        square += double{values[i * d + j]} * values[i * d + j];
      score[i] = score[i] / static_cast<float>(in.group) + epsilon_;
      score[i] *= with_norm_ ? static_cast<float>(std::sqrt(square)) : 1.0F;
    }
  }

 private:
  std::vector<float> logits(const HeadInput& in, const FutureQueries& query, std::span<const float> keys) const {
    const size_t d = query.mean.size();
    const std::vector<float> mean(query.mean.begin(), query.mean.end());
    const std::vector<float> covariance(query.covariance.begin(), query.covariance.end());
    std::vector<float> logit(keys.size() / d), product(d);  // product = covariance * k
    for (size_t row = 0; row < logit.size(); ++row) {
      const float* k = &keys[row * d];
      std::fill(product.begin(), product.end(), 0.0F);
      for (size_t i = 0; with_covariance_ && i < d; ++i) {
        for (size_t j = 0; j < d; ++j)
          product[j] += k[i] * covariance[i * d + j];
      }
      double sum = 0;
      for (size_t j = 0; j < d; ++j)
        sum += double{k[j]} * (double{mean[j]} + 0.5 * in.scale * product[j]);
      logit[row] = static_cast<float>(sum * in.scale);
    }
    return logit;
  }

  // Rows in front of the softmax's get at most the weight of its largest.
  static void add_softmax(const HeadInput& in, std::span<const float> logit, std::span<float> score) {
    size_t first = 0;
    while (first < in.is_protected.size() && in.is_protected[first] != 0)
      ++first;
    first = first == logit.size() ? 0 : first;
    const float top = *std::max_element(logit.begin() + static_cast<ptrdiff_t>(first), logit.end());
    double sum = 0;
    for (size_t i = first; i < logit.size(); ++i)
      sum += std::exp(double{logit[i]} - top);
    for (size_t i = 0; i < logit.size(); ++i)
      score[i] += static_cast<float>(std::exp(std::min(0.0, double{logit[i]} - top)) / sum);
  }

  int future_;
  float epsilon_;
  bool with_covariance_, with_norm_;
};

std::unique_ptr<Scorer> make(const OptionValues& options) { return std::make_unique<Expected>(options); }

}  // namespace

Method scorer_expected() {
  return {.info = {.name = "expected",
                   .summary = "the attention that queries like those so far will pay at the next positions",
                   .source = "Expected Attention, arXiv 2510.00636; as kvpress 0.5",
                   .options = {integer_option("future", "512", {1, 65536}, "next positions that are averaged over"),
                               choice_option("covariance", {"on", "off"}, "with the queries' covariance"),
                               choice_option("vnorm", {"on", "off"}, "times the length of the value"),
                               real_option("epsilon", "0", {0, 1}, "added before the value's length counts")}},
          .default_allocator = "uniform",
          .default_schedule = kEveryTurn,
          .default_sinks = "4",
          .default_recent = "1",
          .aliases = {"expected_attention", "expected-attention", "expectedattention"},
          .cost = "group * n * head_dim^2; every query adds head_dim^2",
          .example = {"", {0.3709F, 0.2097F, 0.193F, 0.2008F, 0.5098F, 0.2097F}},
          .make_scorer = make};
}

}  // namespace kedge::eviction
