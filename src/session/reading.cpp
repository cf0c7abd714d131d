#include "session/reading.h"

#include <algorithm>
#include <cmath>

namespace kedge::session {
namespace {

// What a text that was not planned for leaves. While its last chunk is read the first layers are there already and the
// others still need the chunk's working space: rows and growth fill blocks of which the growth's part is free at first.
EvictionTarget after_text(const Plan& plan, const kv::StoreShape& shape, const EvictionTarget& beside) {
  EvictionTarget target = plan.decoding;
  target.blocks = std::min(target.blocks, beside.blocks + shape.n_kv_heads * (target.growth / kBlockRows));
  return target;
}

// A text that was not planned for. Chunk k of the first `steps` has k / steps of the tokens of a full one; what layers
// may hold beside a chunk is what its working space leaves of the budget, so it shrinks as the chunks grow.
Reading tightening(const Plan& plan, const kv::StoreShape& shape, int64_t n_tokens, int n_steps) {
  const int64_t full = plan.followup_chunk_tokens;
  const int64_t total_blocks = planned_blocks(shape, plan);
  const auto chunk = [&](int64_t k) {
    const int64_t part = full * std::min<int64_t>(k, n_steps) / n_steps;
    return std::max<int64_t>(part / kBlockRows * kBlockRows, kBlockRows);
  };
  const auto beside = [&](int64_t k) {
    EvictionTarget target = plan.followup;
    target.blocks = std::max(target.blocks, (total_blocks - reading_blocks(shape, plan, chunk(k))) / shape.n_layers);
    return target;
  };
  Reading reading{.cut_first = true, .before = beside(1), .steps = {}};
  int64_t left = n_tokens;
  for (int64_t k = 1; left > 0; ++k) {
    const int64_t n = std::min(chunk(k), left);
    left -= n;
    reading.steps.push_back(
        {.n_tokens = n, .evict = true, .target = left > 0 ? beside(k + 1) : after_text(plan, shape, beside(k))});
  }
  return reading;
}

}  // namespace

Reading make_reading(const Plan& plan, const kv::StoreShape& shape, const ReadRequest& request) {
  if (!request.fits && !request.planned && request.burst_steps > 0)
    return tightening(plan, shape, request.n_tokens, request.burst_steps);
  const int64_t step = request.fits      ? request.n_batch
                       : request.planned ? plan.chunk_tokens
                                         : plan.followup_chunk_tokens;
  const EvictionTarget between = request.planned ? plan.between_chunks : plan.followup;
  Reading reading{.cut_first = !request.fits && !request.planned, .before = between, .steps = {}};
  for (int64_t begin = 0; begin < request.n_tokens; begin += step) {
    const int64_t n = std::min(step, request.n_tokens - begin);
    const bool last = begin + n == request.n_tokens;
    reading.steps.push_back({.n_tokens = n,
                             .evict = !request.fits || (last && request.planned),
                             .target = !last             ? between
                                       : request.planned ? plan.after_prompt
                                       : request.fits    ? plan.decoding
                                                         : after_text(plan, shape, between)});
  }
  return reading;
}

EvictionTarget scaled(EvictionTarget target, double keep, const LeastRows& least) {
  if (target.rows_exact > 0 || keep >= 1)
    return target;
  const int64_t blocks = least.n_kv_heads * ((least.rows + target.growth + kBlockRows - 1) / kBlockRows);
  target.blocks =
      std::min(target.blocks, std::max<int64_t>(blocks, std::llround(static_cast<double>(target.blocks) * keep)));
  return target;
}

}  // namespace kedge::session
