// KVzip (NeurIPS 2025, arXiv 2505.23416): what the model looks at while it repeats the text.
//   score[i] = max over the repetition's queries t and the group's heads g of  a[t,g,i]
// The session makes the repetition (session/reconstruct.h): every chunk of a prompt that is to be evicted is read
// twice. Weights are softmax over the sinks, the piece of at most 2,048 rows that is repeated, and the repetition
// itself, as in the released code. Rows that no repetition has seen (generated ones, prompts that fitted when they were
// read) stay before those that one has, the newest first: the paper compresses a context and keeps what follows it.
// It shares one budget over all heads and layers; kvpress's layerwise=True is the default allocator here.
#include "base/check.h"
#include "eviction/options.h"

namespace kedge::eviction {
namespace {

class KvZip final : public Scorer {
 public:
  Needs needs() const override { return {.reconstruction = true}; }

  void score(const HeadInput& in, std::span<float> score) const override {
    check(in.reconstruction.size() == score.size(), "kvzip needs a reconstruction");
    for (size_t i = 0; i < score.size(); ++i) {
      const auto position = static_cast<float>(in.rows.position(static_cast<int32_t>(i)));
      const float age = position / static_cast<float>(in.n_tokens);
      score[i] = in.reconstruction[i] > 0 ? in.reconstruction[i] : 1 + age;  // a weight is at most 1
    }
  }
};

std::unique_ptr<Scorer> make(const OptionValues&) { return std::make_unique<KvZip>(); }

}  // namespace

Method scorer_kvzip() {
  return {.info = {.name = "kvzip",
                   .summary = "context reconstruction: the largest attention while the model repeats the text",
                   .source = "KVzip, NeurIPS 2025, arXiv 2505.23416; pieces and softmax as kvpress 0.5",
                   .options = {}},
          .default_allocator = "pooled",
          .default_schedule = kEveryTurn,
          .default_sinks = "4",
          .default_recent = "1",
          .cost = "n; reading a prompt takes two to three times as long",
          .example = {"", {0.9F, 0.2F, 0.6F, 0.1F, 0.3F, 0.05F}},
          .make_scorer = make};
}

}  // namespace kedge::eviction
