// Attention over the rows of one kv head, and the products that scorers need. All sums are f32.
// Results do not depend on the number of threads: work is cut by geometry (segments, tiles), never by thread count.
// Every function has a plain oracle in attention_ref.cpp; the fast ones are chosen at run time by CPU features.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/kv_view.h"

namespace kedge {

// One decode work item is at most this many rows of one head, all of the body or all of the tail. Fixed, so that the
// merge order is too.
inline constexpr int kSegmentRows = 256;
inline constexpr int segments_of(int n_rows) { return (n_rows + kSegmentRows - 1) / kSegmentRows; }
inline int segments_of(const KvHeadView& rows) { return segments_of(rows.n_body()) + segments_of(rows.n_tail); }

struct RowRange {
  int begin;
  int end;
};
// Segment `i` of a head, in order of rows.
inline RowRange segment_of(const KvHeadView& rows, int i) {
  const bool in_tail = i >= segments_of(rows.n_body());
  const int begin = in_tail ? rows.n_body() + (i - segments_of(rows.n_body())) * kSegmentRows : i * kSegmentRows;
  const int limit = in_tail ? rows.n_rows : rows.n_body();
  return {.begin = begin, .end = begin + kSegmentRows < limit ? begin + kSegmentRows : limit};
}

// Partial softmax of one segment for the G query heads of a group: weights relative to the running maximum.
//   m f32 [G] maximum logit; l f32 [G] sum of exp(logit - m); o f32 [G][head_dim] sum of exp(logit - m) * v
// No rows: m = -inf, l = 0, o = 0. Laid out in one float array of partial_floats(): m, l, o.
inline constexpr int partial_floats(int group, int head_dim) { return group * (2 + head_dim); }

struct TileQueries {
  const float* q;    // f32: query row t of group member g is q + t * row_stride + g * head_stride, head_dim floats
  long row_stride;   // floats
  long head_stride;  // floats
  const int32_t* positions;  // i32 [n_queries], ascending; query t sees the rows whose position <= positions[t]
  int n_queries;
  int group;    // query heads of this kv head, 1..16
  float scale;  // multiplies q.k
};

struct TileOutput {
  float* y;          // f32: output of query t of member g at y + t * row_stride + g * head_stride
  long row_stride;   // floats
  long head_stride;  // floats
};

// Query tile that callers should use for prefill (rows of one tile handed to attend_tile).
inline constexpr int kTileQueries = 64;

struct AttentionKernels {
  const char* name;  // "ref", "avx2", "avx512", "avx512vnni", "avx512bf16"

  // Decode: rows [row_begin, row_end) of the head, no mask; within one segment, from a multiple of 16 of its rows on.
  //   q f32 [group][head_dim] contiguous, already as the model made it (scale is applied here)
  //   partial f32 [partial_floats(group, head_dim)] written
  // Prefetches the head's next blocks while it works.
  void (*attend_segment)(const KvHeadView& rows, int row_begin, int row_end, const float* q, int group, float scale,
                         float* partial);

  // Merges n partials (contiguous, segment order) into y f32 [group][head_dim]. All empty: y = 0.
  void (*merge_partials)(const float* partials, int n, int group, int head_dim, float* y);

  // Prefill: one tile of at most kTileQueries queries over all rows of the head, masked by position.
  // scratch: tile_scratch_floats(...) floats, 64-byte aligned, one per thread.
  void (*attend_tile)(const KvHeadView& rows, const TileQueries& queries, const TileOutput& out, float* scratch);

  // Scoring: softmax weights of each query over all rows it may see (0 elsewhere). Exact (two passes), f32.
  //   weights f32 [n_queries * group][n_rows], query-major: index (t * group + g) * n_rows + i
  void (*attention_weights)(const KvHeadView& rows, const TileQueries& queries, float* weights);

  // score[i] += sum over m of a[m][i] * dot(y[m], v[i]);  a f32 [n][n_rows], y f32 [n][head_dim], score f32 [n_rows].
  // AnDPro (OpenReview Tdl89SZItB): rowsum((A^T Y) * V).
  void (*anchor_scores)(const KvHeadView& rows, const float* a, const float* y, int n, float* score);

  // y[i] = 2^x[i] as the softmax of this set computes it: 0 below -126 (no subnormals). x below 128.
  void (*exp2_floats)(const float* x, float* y, int n);
};

long tile_scratch_floats(int n_queries, int group, int head_dim);

// The best set this CPU can run, or the one called `name` ("ref" and all that the CPU supports); nullptr if it cannot.
const AttentionKernels& best_attention_kernels();
const AttentionKernels* attention_kernels(const char* name);

// Rows [row_begin, row_end) of a head as f32: k and v f32 [row_end - row_begin][head_dim]; either may be nullptr.
void read_rows(const KvHeadView& rows, int row_begin, int row_end, float* k, float* v);

// Writes one row (k, v f32 [head_dim]) into slot `slot` of the block at `block`: rounded to nearest even, or quantised
// (quant.h).
void write_row(std::byte* block, int slot, int head_dim, RowTypes type, const float* k, const float* v);

// Copies row `src_slot` of src to `dst_slot` of dst (same head_dim and type), bytes unchanged.
void copy_row(std::byte* dst, int dst_slot, const std::byte* src, int src_slot, int head_dim, RowTypes type);

struct RowSource {
  const std::byte* block;
  int slot;
};

// Copy K, or V, of sources[i] to slot slot_begin + i of dst, as copy_row() does one after the other; keys several times
// as fast, a line of 16 rows at a time (gather.h). Sources of one block are neighbours; those that lie in dst come
// first, none before the slot it goes to. K and V share no byte: two threads may move them.
void gather_keys(std::byte* dst, int slot_begin, std::span<const RowSource> sources, int head_dim, RowTypes type);
void gather_values(std::byte* dst, int slot_begin, std::span<const RowSource> sources, int head_dim, RowTypes type);

}  // namespace kedge
