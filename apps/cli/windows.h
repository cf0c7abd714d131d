// Where in a text perplexity's windows lie.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "kedge/error.h"

namespace kedge::cli {

struct WindowRequest {
  int64_t n_tokens = 0;  // of the text
  int64_t length = 0;    // of a window: prompt and continuation
  int samples = 0;
  uint64_t seed = 0;
};

// `samples` distinct token offsets, uniform over all windows that fit, in the order drawn. Generator: SplitMix64 (state
// = seed; state += 0x9E3779B97F4A7C15 each draw); an offset is the high 64 bits of draw * (n_tokens - length + 1);
// repeated offsets are skipped. Error usage: the text is too short for one window, or has fewer than `samples`.
Result<std::vector<int64_t>> sample_offsets(const WindowRequest& request);

// "17611,74606". Error usage: not a list of whole numbers.
Result<std::vector<int64_t>> parse_offsets(std::string_view list);

// A window that reaches beyond the text's end is moved back to the last place that fits. Error usage: it starts beyond
// the end.
Result<std::vector<int64_t>> fit_offsets(std::vector<int64_t> offsets, int64_t n_tokens, int64_t length);

}  // namespace kedge::cli
