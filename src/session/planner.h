// What a budget means for a request: how the prompt is read, what each layer keeps, when rows are evicted. Pure
// arithmetic.
//
// A prompt is read in chunks; within a chunk the layers take turns: a layer appends the chunk's rows, attends, and is
// evicted to its share before the next layer starts, so that only one layer at a time holds rows beyond its share.
//   one chunk = the whole prompt: "layer-major". Every row is attended in full before anything is evicted (exact).
//   several chunks: "chunked". Any length in any budget; early rows are judged by what was read so far.
#pragma once

#include <cstdint>
#include <string>

#include "eviction/policy.h"
#include "kedge/budget.h"
#include "kedge/error.h"
#include "kedge/session.h"
#include "kv/store.h"

namespace kedge::session {

struct Request {
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = -1;  // -1: not known
  int64_t n_ctx = 0;              // logical limit; sizes the store when the budget is unlimited
  int n_batch = 2048;
  int n_ubatch = 512;
  bool hold_continuation = false;
  int64_t branch_tokens = 0;  // SessionOptions::branch_tokens
  PrefillOrder order = PrefillOrder::automatic;
  Overflow overflow = Overflow::evict;
  int64_t probe_extra = 0;  // > 0: chunks are repeated (probe_rows); tokens of a repetition beside the text itself
};

// A chunk's repetition is made in pieces of at most this many of its tokens, as published (KVzip, arXiv 2505.23416).
inline constexpr int64_t kProbeTokens = 2048;
// Rows that the longest piece of the repetition of n tokens adds; 0 where nothing is repeated.
int64_t probe_rows(int64_t n, int64_t extra);

// Per layer, in blocks of kBlockRows rows of one kv head; the mean over layers where the allocator weighs them
// (session/layer_targets.h) or lets them share (Timeline::join_layer).
struct EvictionTarget {
  int64_t blocks = 0;      // what the layer may hold afterwards, growth included
  int32_t growth = 0;      // rows each head may append before the next eviction
  int64_t rows_exact = 0;  // > 0: keep exactly this many rows over the layer's heads, whatever the blocks
  // > 0: a layer cannot have more tokens. Allocators that weigh layers give what one cannot use to others.
  int64_t most_tokens = 0;
};

// Rows per kv head that shares of the budget are shares of.
inline double rows_of(const EvictionTarget& target, int64_t n_kv_heads) {
  const int64_t rows =
      target.rows_exact > 0 ? target.rows_exact : target.blocks * kBlockRows - n_kv_heads * target.growth;
  return static_cast<double>(rows) / static_cast<double>(n_kv_heads);
}

// Rows that pass through f16 before they are quantised; as asked, less where a byte budget is small.
struct F16Rows {
  int ubatch_tokens = 0;  // tokens of one graph
  int window = 0;         // newest rows of each head
};

struct Plan {
  int64_t budget_bytes = 0;  // hard limit of the store
  int64_t full_bytes = 0;    // full cache of the request in f16, as far as it is known
  bool evicts = false;       // false: the request fits as far as it is known
  bool layer_major = false;  // the whole prompt is one chunk
  int chunk_tokens = 0;
  F16Rows f16_rows;
  EvictionTarget between_chunks;
  EvictionTarget after_prompt;
  EvictionTarget decoding;
  int followup_chunk_tokens = 0;   // a prompt that was not announced, or a later turn: read in chunks of this size
  EvictionTarget followup;         // what layers are evicted to before and between those chunks
  int64_t probe_extra = 0;         // Request::probe_extra
  int64_t token_bytes = 0;         // of K and V rows of one token, without metadata
  double rows_per_head = 0;        // kept on average after the prompt
  int64_t branch_blocks = 0;       // of the budget, left free for what follows a mark
  int64_t tail_bytes = 0;          // of the budget, for f16 rows of quantised ones
  int64_t own_blocks = 0;          // > 0: of a branch (plan_branch), what its layers may own together
  int64_t least_layer_blocks = 0;  // a layer that is evicted can hold no fewer: its protected rows and one more
  std::string line;                // for people
};

// Errors: budget_impossible (arithmetic and the smallest budget that works), context_too_long (overflow = error).
Result<Plan> make_plan(const kv::StoreShape& shape, const Budget& budget, const eviction::Policy& policy,
                       const Request& request);

// The plan of a timeline that has a mark, when the marked rows leave `own_blocks` of the store: eviction never writes
// into a shared block, so that what a branch keeps it must own, and copies are made before what it owned is given back:
// of one layer at a time, or of all where layers share a total. Targets only; never fails: whether decoding.blocks
// reaches least_layer_blocks is checked when rows have to go.
Plan plan_branch(const kv::StoreShape& shape, const eviction::Policy& policy, const Request& request, const Plan& plan,
                 int64_t own_blocks);

// Rows of a head that are protected whatever the budget is, plus one that is free to change.
int64_t fixed_rows(const eviction::Policy& policy);

// Blocks a layer needs beyond its share while it holds n more rows per head.
int64_t working_blocks(const kv::StoreShape& shape, int64_t n_rows);
// The same while it reads a chunk of n tokens, with the rows of its repetition where there is one.
int64_t reading_blocks(const kv::StoreShape& shape, const Plan& plan, int64_t n);
// Blocks of the plan's budget, beside the f16 tails of quantised rows.
int64_t planned_blocks(const kv::StoreShape& shape, const Plan& plan);

}  // namespace kedge::session
