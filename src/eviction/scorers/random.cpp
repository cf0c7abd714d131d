// Control: rows drawn at random, the same for the same seed, layer, head and position (so that a row's luck does not
// change from one eviction to the next, nor with the number of threads).
#include "eviction/window_scorer.h"

namespace kedge::eviction {
namespace {

// splitmix64: every bit of the input changes half the bits of the output.
uint64_t mixed(uint64_t x) {
  x += 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

class Random final : public Scorer {
 public:
  Needs needs() const override { return {}; }
  void score(const HeadInput& in, std::span<float> score) const override {
    const uint64_t head =
        mixed(mixed(in.seed) ^ (static_cast<uint64_t>(in.layer) << 32 | static_cast<uint32_t>(in.head)));
    for (int32_t i = 0; i < in.rows.n_rows; ++i) {
      const uint64_t bits = mixed(head ^ static_cast<uint64_t>(in.rows.position(i)));
      score[static_cast<size_t>(i)] = static_cast<float>(bits >> 40) * 0x1p-24F;  // uniform in [0, 1)
    }
  }
};

std::unique_ptr<Scorer> make(const OptionValues&) { return std::make_unique<Random>(); }

}  // namespace

Method scorer_random() {
  return {.info = {.name = "random",
                   .summary = "rows drawn at random: a control",
                   .source = "control: a hash of seed, layer, head and position",
                   .options = {}},
          .default_allocator = "uniform",
          .default_schedule = "every:n=64",
          .default_sinks = "0",
          .default_recent = "0",
          .cost = "n",
          .example = {"", {0.1387F, 0.1844F, 0.6975F, 0.3212F, 0.4455F, 0.4433F}},
          .make_scorer = make};
}

}  // namespace kedge::eviction
