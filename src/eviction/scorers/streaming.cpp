// StreamingLLM (ICLR 2024, arXiv 2309.17453): sinks and the most recent rows. Keys keep the rotation they were written
// with.
#include "eviction/window_scorer.h"

namespace kedge::eviction {
namespace {

class Streaming final : public Scorer {
 public:
  Needs needs() const override { return {}; }
  void score(const HeadInput& in, std::span<float> score) const override { score_by_position(in, score); }
};

std::unique_ptr<Scorer> make(const OptionValues&) { return std::make_unique<Streaming>(); }

}  // namespace

Method scorer_streaming() {
  return {.info = {.name = "streaming",
                   .summary = "the first rows (attention sinks) and the most recent ones",
                   .source = "StreamingLLM, ICLR 2024, arXiv 2309.17453",
                   .options = {}},
          .default_allocator = "uniform",
          .default_schedule = kEveryTurn,
          .default_sinks = "4",
          .default_recent = "0",
          .aliases = {"streaming_llm", "streaming-llm", "streamingllm"},
          .cost = "n",
          .example = {"", {0, 1, 2, 3, 4, 5}},
          .make_scorer = make};
}

}  // namespace kedge::eviction
