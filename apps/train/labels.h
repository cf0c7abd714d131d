// What a gate is to predict of a row: how much a later query will want it, times what its value can do.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "eviction/policy.h"

namespace kedge::train {

// future: the largest weight that a query gives the row at least `window` tokens after it was written (what the text
//   itself goes on to look at)
// repeat: the largest weight that the row gets while the model repeats the text (KVzip+ of arXiv 2601.07891)
// both: the larger of the two
enum class Label { future, repeat, both };

// Over the queries of the head's window that stand in [begin, end), and the heads of its group: f32 [n_rows]; 0 where
// no query comes that late.
struct QueryRange {
  int32_t begin = 0;  // positions
  int32_t end = INT32_MAX;
};
std::vector<float> future_attention(const eviction::HeadInput& in, int window, QueryRange range = {});

// What a value can do to the stream: v -> ||W_O v||_2, the root of the mean of squares over the group's heads, from the
// heads' Gram matrices: W_O of a head is [head_dim][n_embd], and n_embd is much more than head_dim.
class OutputNorm {
 public:
  // w_o f32 [group][head_dim][n_embd] of the heads of one group.
  OutputNorm(std::span<const float> w_o, int group, int head_dim, int n_embd);
  // f32 [n_rows]
  std::vector<float> of(const KvHeadView& rows) const;
  // The mean of ||W_O y||^2 over every eighth query of the head's window.
  double mean_square_output(const eviction::HeadInput& in) const;

 private:
  double square(const float* v, std::vector<float>& turned) const;
  int head_dim_;
  std::vector<float> gram_;  // f32 [head_dim][head_dim], the mean over the heads
};

// What a row's weight is multiplied by.
// value: ||W_O v||, what it adds to the stream (KVzap, arXiv 2601.07891)
// change: sqrt(||W_O v||^2 + mean ||W_O y||^2), what its going changes, ||W_O (v - y)||, where v and y are unrelated. A
//   row that only takes attention, and whose value is next to nothing, leaves much to the others when it goes.
enum class LabelNorm { value, change };

// log(weight * norm), f32 [n_rows]. Weights below 1e-6 count as 1e-6: below, f16 keys say little.
// Needs HeadInput::reconstruction for repeat and both, all queries in the window for future and both.
struct LabelOptions {
  Label label = Label::both;
  LabelNorm norm = LabelNorm::value;
  int window = 32;
};
struct RowLabels {          // f32 [n_rows]
  std::vector<float> all;   // of all later queries
  std::vector<float> late;  // of those from the cut on: what somebody who decides there could not know
};
// cut: a position; 0: both are the same. A repetition comes after any cut.
RowLabels row_labels(const eviction::HeadInput& in, const OutputNorm& norm, const LabelOptions& options,
                     int32_t cut = 0);

// The policy whose scorer is given what row_labels() needs.
std::string policy_for(Label label);

}  // namespace kedge::train
