// The kernel sets and what they share. Internal to src/kernels: everyone else goes through attention.h.
#pragma once

#include "kernels/attention.h"

namespace kedge {

inline constexpr int kMaxHeadDim = 256;
inline constexpr int kMaxGroup = 16;

// Rows worked on at a time: four blocks.
inline constexpr int kStepBlocks = 4;
inline constexpr int kStepRows = kStepBlocks * kBlockRows;

// Query rows of one register tile of the matrix kernels; a tile's rows are padded to a multiple of this.
inline constexpr int kTileRows = 6;
inline constexpr int padded_rows(int n) { return (n + kTileRows - 1) / kTileRows * kTileRows; }

// Floats up to the next multiple of a cache line.
inline constexpr long round_to_line(long n) { return (n + 15) / 16 * 16; }

extern const AttentionKernels kRefKernels;
extern const AttentionKernels kAvx2Kernels;
extern const AttentionKernels kAvx512Kernels;
extern const AttentionKernels kAvx512VnniKernels;
extern const AttentionKernels kAvx512Bf16Kernels;

// The f32 functions of the AVX-512 set, for the sets built on it.
namespace avx512 {
void attend_segment(const KvHeadView& rows, int row_begin, int row_end, const float* q, int group, float scale,
                    float* partial);
void attend_tile(const KvHeadView& rows, const TileQueries& queries, const TileOutput& out, float* scratch);
void attention_weights(const KvHeadView& rows, const TileQueries& queries, float* weights);
void anchor_scores(const KvHeadView& rows, const float* a, const float* y, int n, float* score);
void exp2_floats(const float* x, float* y, int n);
}  // namespace avx512
namespace avx512vnni {
void attend_segment(const KvHeadView& rows, int row_begin, int row_end, const float* q, int group, float scale,
                    float* partial);
}  // namespace avx512vnni

void merge_partials(const float* partials, int n, int group, int head_dim, float* y);

}  // namespace kedge
