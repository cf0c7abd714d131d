// ChunkKV (arXiv 2502.00299), as kvpress 0.5: neighbouring rows stay or go together, by the mean of another scorer.
//   score of a chunk = mean over its rows of  sum over the layer's heads of  base[i]
// Chunks are cut at multiples of `chunk` from row 0; one list for all heads of a layer (heads=layer, as kvpress), or
// one for each kv head (heads=group). kvpress keeps whole chunks, up to one fewer than fit; here the last chunk is
// split, its best rows stay, and the count is exact. select() lets chunks compete by their sums, so each row is
// shifted: the sum over the rows of a chunk that can be chosen (not protected, and fewer at the end) becomes chunk *
// mean. base: any scorer that evicts, with its defaults; the paper's is snapkv. The paper's reuse of one layer's choice
// in the next layers is not here.
#include <algorithm>

#include "eviction/options.h"
#include "eviction/wrapper.h"

namespace kedge::eviction {
namespace {

class ChunkKv final : public Wrapper {
 public:
  ChunkKv(std::unique_ptr<Scorer> base, int chunk, bool has_one_list)
      : Wrapper(std::move(base)), chunk_(chunk), has_one_list_(has_one_list) {}
  int chunk() const override { return chunk_; }
  bool has_one_list() const override { return has_one_list_; }

 protected:
  void rescore(const HeadInput& in, std::span<float> score) const override {
    const size_t step = static_cast<size_t>(chunk_);
    for (size_t begin = 0; begin < score.size(); begin += step) {
      const auto rows = score.subspan(begin, std::min(step, score.size() - begin));
      double all = 0;
      double free = 0;  // rows that compete
      int n_free = 0;
      for (size_t i = 0; i < rows.size(); ++i) {
        all += rows[i];
        if (!in.is_protected.empty() && in.is_protected[begin + i] != 0)
          continue;
        free += rows[i];
        ++n_free;
      }
      if (n_free == 0)
        continue;
      const double target = chunk_ * all / static_cast<double>(rows.size());
      for (float& row : rows)
        row = static_cast<float>(row + (target - free) / n_free);
    }
  }

 private:
  int chunk_;
  bool has_one_list_;
};

std::unique_ptr<Scorer> make(const OptionValues& options) {
  return std::make_unique<ChunkKv>(make_base(options), static_cast<int>(options.numbers.at("chunk")),
                                   options.choices.at("heads") == "layer");
}

}  // namespace

Method scorer_chunkkv() {
  return {.info = {.name = "chunkkv",
                   .summary = "chunks of rows by the mean of another scorer's scores",
                   .source = "ChunkKV, arXiv 2502.00299; as kvpress 0.5",
                   .options = {base_option("snapkv"),
                               integer_option("chunk", "20", {1, 64}, "neighbouring rows kept or dropped together"),
                               choice_option("heads", {"layer", "group"},
                                             "one list for the layer's heads, or one for each kv head")}},
          .default_allocator = "uniform",
          .default_schedule = kEveryTurn,
          .default_sinks = "0",
          .default_recent = "32",
          .aliases = {"chunk_kv", "chunk-kv"},
          .cost = "the base's",
          .example = {"base=recent,chunk=4", {0, 1, 2, 3, 8.5F, 9.5F}},
          .validate = check_base,
          .make_scorer = make};
}

}  // namespace kedge::eviction
