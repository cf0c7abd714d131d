// How near decode attention comes to the memory's speed, both measured in the same run, alternating.
#pragma once

#include <cstdint>

namespace kedge::bench {

struct AttentionWall {
  int64_t cache_bytes = 0;    // rows attended over, beyond any cache
  double read_gb_s = 0;       // plain reading of a buffer of that size, same threads
  double attention_gb_s = 0;  // payload bytes of the rows per second
  double ns_per_row = 0;      // per row of one kv head
};

// f16 rows of a store filled head by head, blocks in sequence.
AttentionWall measure_attention_wall(int n_kv_heads, int group, int head_dim, int n_threads);

}  // namespace kedge::bench
