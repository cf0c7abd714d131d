// KeyDiff (arXiv 2504.15364): rows whose keys point away from the others stay.
//   score[i] = -cos(k[i], anchor),   anchor = mean over all rows of k / ||k||
// anchor=mean takes the mean of the keys as they are; anchor=unit, the default, is what kvpress computes. A key or an
// anchor of no length has cosine 0. The paper evicts between blocks of the prompt (schedule between-chunks); here, as
// in kvpress, that is the schedule's matter.
#include <cmath>

#include "eviction/options.h"
#include "eviction/row_math.h"

namespace kedge::eviction {
namespace {

class KeyDiff final : public Scorer {
 public:
  explicit KeyDiff(bool has_unit_anchor) : has_unit_anchor_(has_unit_anchor) {}
  Needs needs() const override { return {.values = true}; }

  void score(const HeadInput& in, std::span<float> score) const override {
    const size_t dim = static_cast<size_t>(in.rows.head_dim);
    const std::vector<float> norms = row_norms(in.rows, Part::keys, Norm::l2);
    std::vector<double> sum(dim, 0.0);
    std::vector<float> key(dim);
    for (int32_t i = 0; i < in.rows.n_rows; ++i) {
      const float norm = norms[static_cast<size_t>(i)];
      read_rows(in.rows, i, i + 1, key.data(), nullptr);
      for (size_t j = 0; j < dim && norm > 0; ++j)
        sum[j] += has_unit_anchor_ ? key[j] / norm : key[j];
    }
    double length = 0;
    for (const double x : sum)
      length += x * x;
    length = std::sqrt(length);
    std::vector<float> anchor(dim);
    for (size_t j = 0; j < dim; ++j)
      anchor[j] = length > 0 ? static_cast<float>(sum[j] / length) : 0;
    key_products(in.rows, anchor.data(), 1, -1, score);
    for (size_t i = 0; i < norms.size(); ++i)
      score[i] = norms[i] > 0 ? score[i] / norms[i] : 0;
  }

 private:
  bool has_unit_anchor_;
};

std::unique_ptr<Scorer> make(const OptionValues& options) {
  return std::make_unique<KeyDiff>(options.choices.at("anchor") == "unit");
}

}  // namespace

Method scorer_keydiff() {
  return {.info = {.name = "keydiff",
                   .summary = "rows whose keys differ from the mean key stay",
                   .source = "KeyDiff, arXiv 2504.15364; as kvpress 0.5",
                   .options = {choice_option("anchor", {"unit", "mean"}, "mean of unit keys, or of the keys")}},
          .default_allocator = "uniform",
          .default_schedule = kEveryTurn,
          .default_sinks = "0",
          .default_recent = "0",
          .aliases = {"key_diff", "key-diff"},
          .cost = "n * head_dim",
          .example = {"", {-0.7071F, -0.7071F, -0.7071F, 0, -1, -0.7071F}},
          .make_scorer = make};
}

}  // namespace kedge::eviction
