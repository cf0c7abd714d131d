// What scorers that look at the attention of the last queries share: batches of bounded scratch, pooling along rows.
#pragma once

#include <functional>
#include <span>

#include "eviction/policy.h"

namespace kedge::eviction {

// The same head with only the last `window` of its queries (all if it has fewer; none if window is 0).
HeadInput last_queries(HeadInput in, int window);

// score = position: what is left when nothing was observed, and what the streaming family is.
void score_by_position(const HeadInput& in, std::span<float> score);

// How many rows stand before the window's first query; what is behind them are the window's own rows.
int32_t rows_before_window(const HeadInput& in);
// Scores 2..3 for the rows from `n_before` on, rising: above any mean of softmax weights, the newest first.
void lift_window_rows(std::span<float> score, int32_t n_before);

// Replaces each score by the mean over the heads that hold a row of the same position (Scorer::has_one_list).
void average_over_heads(std::span<const HeadInput> heads, std::span<std::vector<float>> score);

// Softmax weights of all of a tile's queries in batches: use(t, n, a) gets queries t..t+n-1, a f32 [n * group][n_rows]
// query-major, free to be overwritten. Scratch is 2 MiB, or one query's weights if these are more.
using UseWeights = std::function<void(int t, int n, std::span<float> a)>;
void for_weights(const AttentionKernels& kernels, const KvHeadView& rows, const TileQueries& tile,
                 const UseWeights& use);
// Of queries [begin, end) of a head's window; t counts from the window's first.
void for_weight_batches(const HeadInput& in, int begin, int end, const UseWeights& use);

// Centred sliding windows of `width` (odd) along f32 values [n], in place. max: of the rows that exist (values >= 0).
// average: always divides by `width`, rows that do not exist count as 0 (as torch's avg_pool1d with padding does).
void max_pool(std::span<float> values, int width);
void average_pool(std::span<float> values, int width);

// A scorer over the last `window` queries that adds them up.
class WindowScorer : public Scorer {
 public:
  explicit WindowScorer(int window) : window_(window) {}
  Needs needs() const override { return {.window = window_, .values = true}; }
  bool splits_by_query() const override { return true; }
  void score(const HeadInput& in, std::span<float> score) const override;
  // "attention": the mean weight that the window's queries give a row; and what part_names() adds (explain.cpp).
  std::vector<ScorePart> explain(const HeadInput& in, std::span<const float> score) const override;

 protected:
  struct PartNames {
    int pool = 1;                    // each query's weights are max-pooled along the rows first
    std::string per_attention = {};  // scores that are attention times something: its name; empty: they are not
  };
  virtual PartNames part_names() const { return {}; }

 private:
  int window_;
};

}  // namespace kedge::eviction
