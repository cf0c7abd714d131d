// TriAttention (arXiv 2604.04921): before rotation queries lie around a centre, so that the attention to a key is a
// trigonometric series of the distance. Per query head, with k the key before rotation and p its position, f the pairs
// of dimensions as complex numbers, m_f the queries' mean, r_f the mean of their lengths |q_f|, T the sequence's
// length:
//   s[i] = mean over offsets D = 1, 2, 4, ... of  sum over f of  |m_f| |k_f| cos(w_f (T + D - p) + arg m_f - arg k_f)
//          + sum over f of  (r_f - |m_f|) |k_f|
//   score[i] = max over the group of  (s[i] - mean of s) / deviation of s
// The rotated key is k e^(i w p), so that the first sum is a product with the mean of m e^(i w (T + D)).
// The centres are those of this sequence's own queries; the paper calibrates them once on other text. Made for
// decoding: there the prompt is never evicted, here rows of the prompt compete like all others.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "eviction/future_queries.h"
#include "eviction/options.h"
#include "eviction/window_scorer.h"

namespace kedge::eviction {
namespace {

class TriAttention final : public Scorer {
 public:
  explicit TriAttention(const OptionValues& options)
      : is_maximum_(options.choices.at("group") == "max"), has_length_(options.choices.at("length") == "on") {
    for (int64_t offset = 1; offset <= static_cast<int64_t>(options.numbers.at("offsets")); offset *= 2)
      offsets_.push_back(offset);
  }
  Needs needs() const override { return {.values = true, .query_moments = true}; }

  void score(const HeadInput& in, std::span<float> score) const override {
    check(in.moments != nullptr && in.rotation != nullptr, "triattention needs moments");
    if (in.moments->n_queries == 0)
      return score_by_position(in, score);
    const Turns turns = mean_turns(in, offsets_);
    std::vector<float> keys(score.size() * static_cast<size_t>(in.rows.head_dim));
    read_rows(in.rows, 0, in.rows.n_rows, keys.data(), nullptr);
    std::fill(score.begin(), score.end(), is_maximum_ ? -INFINITY : 0.0F);
    for (int g = 0; g < in.group; ++g) {
      const std::vector<double> series = standardised(series_of(in, g, turns, keys));
      for (size_t i = 0; i < score.size(); ++i) {
        const auto one = static_cast<float>(series[i]);
        score[i] = is_maximum_ ? std::max(score[i], one) : score[i] + one / static_cast<float>(in.group);
      }
    }
  }

 private:
  std::vector<double> series_of(const HeadInput& in, int member, const Turns& turns,
                                std::span<const float> keys) const {
    const Rotation& rotation = *in.rotation;
    const size_t d = static_cast<size_t>(in.rows.head_dim);
    const double* sum = &in.moments->sum[static_cast<size_t>(member) * d];
    const double* length = &in.moments->length[static_cast<size_t>(member) * turns.size()];
    std::vector<double> out(keys.size() / d, 0.0);
    for (size_t f = 0; f < turns.size(); ++f) {
      const auto a = static_cast<size_t>(rotation.first(static_cast<int>(f)));
      const auto b = static_cast<size_t>(rotation.second(static_cast<int>(f)));
      const auto n = static_cast<double>(in.moments->n_queries);
      const std::complex<double> mean(sum[a] / n, sum[b] / n);
      const std::complex<double> turned = mean * turns[f];
      const double spread = has_length_ ? (length[f] / n - std::abs(mean)) * double{rotation.magnitude} : 0.0;
      for (size_t i = 0; i < out.size(); ++i) {
        const double x = keys[i * d + a];
        const double y = keys[i * d + b];
        out[i] += turned.real() * x + turned.imag() * y + spread * std::sqrt(x * x + y * y);
      }
    }
    return out;
  }

  static std::vector<double> standardised(std::vector<double> x) {
    const auto n = static_cast<double>(x.size());
    double mean = 0;
    double square = 0;
    for (const double value : x)
      mean += value / n;
    for (const double value : x)
      square += (value - mean) * (value - mean) / n;
    for (double& value : x)
      value = (value - mean) / std::max(std::sqrt(square), 1e-6);
    return x;
  }

  std::vector<int64_t> offsets_;
  bool is_maximum_, has_length_;
};

std::unique_ptr<Scorer> make(const OptionValues& options) { return std::make_unique<TriAttention>(options); }

}  // namespace

Method scorer_triattention() {
  return {.info = {.name = "triattention",
                   .summary = "the attention that the queries' centre pays at distances from near to far",
                   .source = "TriAttention, arXiv 2604.04921; standardised and joined as its released code",
                   .options = {integer_option("offsets", "65536", {1, 1048576}, "the farthest distance: 1, 2, 4, ..."),
                               choice_option("length", {"on", "off"}, "with the term of the queries' lengths"),
                               choice_option("group", {"max", "mean"}, "how the group's query heads are joined")}},
          .default_allocator = "uniform",
          .default_schedule = "every:n=128",
          .default_sinks = "4",
          .default_recent = "12.5%",
          .aliases = {"tri_attention", "tri-attention"},
          .cost = "group * n * head_dim; every query adds head_dim^2",
          .example = {"", {1.6161F, -0.5859F, 0.107F, -1.4022F, 0.8509F, -0.5859F}},
          .make_scorer = make};
}

}  // namespace kedge::eviction
