// What every decode over quantised rows shares: the blocks of a step, and q4 levels as bytes.
#pragma once

#include "kernels/decode_inl.h"
#include "kernels/gemm_inl.h"
#include "kernels/widen_inl.h"

namespace kedge {
namespace {

constexpr int kKeyBias = 128;

struct LevelBytes {
  alignas(64) uint8_t biased[64]{};  // level + 128, four times
  constexpr LevelBytes() {
    for (int i = 0; i < 64; ++i)
      biased[i] = static_cast<uint8_t>(kQ4Levels[i % 16] + kKeyBias);
  }
};
constexpr LevelBytes kLevelBytes;

// Blocks of one step, as Step, of quantised rows.
struct CodeStep {
  const std::byte* block[kStepBlocks];  // beyond the last one: the last one again, masked later
  const std::byte* next[kStepBlocks];   // to prefetch
  int n_rows;
};

[[gnu::always_inline]] inline void set_code_step(const KvHeadView& rows, size_t block_bytes, int row, int row_end,
                                                 CodeStep& step) {
  const int first = row / kBlockRows;
  step.n_rows = min_int(kStepRows, row_end - row);
  const int last = (row + step.n_rows - 1) / kBlockRows;
  const int head_blocks = (rows.n_rows + kBlockRows - 1) / kBlockRows;
  for (int b = 0; b < kStepBlocks; ++b) {
    step.block[b] = rows.blocks + rows.block_ids[min_int(first + b, last)] * block_bytes;
    const int ahead = first + kStepBlocks + b;
    step.next[b] = ahead < head_blocks ? rows.blocks + rows.block_ids[ahead] * block_bytes : step.block[b];
  }
}

}  // namespace
}  // namespace kedge
