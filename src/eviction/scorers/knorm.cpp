// Key norm (arXiv 2406.11430, EMNLP 2024): keys of small norm receive much attention.
//   score[i] = -||k[i]||_2
// A rotation changes no norm, so the stored keys serve. The paper leaves the first two layers alone; kvpress does not,
// nor does this. Norms are f32 whatever the rows are stored in (bf16 norms tie for most rows).
#include "eviction/row_math.h"

namespace kedge::eviction {
namespace {

class KeyNorm final : public Scorer {
 public:
  Needs needs() const override { return {.values = true}; }
  void score(const HeadInput& in, std::span<float> score) const override {
    const std::vector<float> norms = row_norms(in.rows, Part::keys, Norm::l2);
    for (size_t i = 0; i < norms.size(); ++i)
      score[i] = -norms[i];
  }
};

std::unique_ptr<Scorer> make(const OptionValues&) { return std::make_unique<KeyNorm>(); }

}  // namespace

Method scorer_knorm() {
  return {.info = {.name = "knorm",
                   .summary = "rows with small keys stay",
                   .source = "key norm, EMNLP 2024, arXiv 2406.11430; as kvpress 0.5",
                   .options = {}},
          .default_allocator = "uniform",
          .default_schedule = kEveryTurn,
          .default_sinks = "0",
          .default_recent = "0",
          .aliases = {"k_norm", "k-norm"},
          .cost = "n * head_dim",
          .example = {"", {-2, -1, -1, 0, -1.4142F, -1}},
          .make_scorer = make};
}

}  // namespace kedge::eviction
