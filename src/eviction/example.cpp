#include "eviction/example.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace kedge::eviction {
namespace {

constexpr std::array<std::array<float, 2>, ExampleHead::kRows> kKeys = {
    {{2, 0}, {0, 1}, {1, 0}, {0, 0}, {1, 1}, {0, 1}}};
constexpr std::array<std::array<float, 2>, ExampleHead::kRows> kValues = {
    {{1, 0}, {2, 1}, {-1, 1}, {4, 0}, {0, 2}, {1, -2}}};
constexpr std::array<std::array<float, 2>, 2> kQueries = {{{1, 0}, {1, 1}}};

}  // namespace

ExampleHead::ExampleHead()
    : positions_(kBlockRows, -1),
      q_(2 * kHeadDim, 0.0F),
      y_(2 * kHeadDim, 0.0F),
      query_positions_{4, 5},
      tokens_{10, 11, 12, 13, 14, 15},
      token_kinds_{kSpecialToken, kPunctuationToken, 0, 0, 0, 0},
      is_protected_(kRows, 0),
      attention_sum_{3.0F, 1.6F, 1.2F, 0.4F, 0.8F, 0.1F},
      past_{0.5F, 0.3F, 0.2F, 0.1F, 0.3F, 0.1F},
      echo_{0.8F, 0.1F, 0.5F, 0.1F, 0.2F, 0.1F},
      reconstruction_{0.9F, 0.2F, 0.6F, 0.1F, 0.3F, 0.05F},
      gate_{2.0F, -0.5F, 1.0F, -1.5F, 0.0F, -3.0F},
      w_o_(size_t{kHeadDim} * kEmbd, 0.0F) {
  for (int row = 0; row < kRows; ++row) {
    std::array<float, kHeadDim> key{};
    std::array<float, kHeadDim> value{};
    std::copy_n(kKeys[row].begin(), 2, key.begin());
    std::copy_n(kValues[row].begin(), 2, value.begin());
    write_row(block_.bytes, row, kHeadDim, RowType::f16, key.data(), value.data());
    positions_[row] = row;
  }
  moments_.n_queries = 2;
  moments_.sum.assign(kHeadDim, 0.0);
  moments_.outer.assign(size_t{kHeadDim} * kHeadDim, 0.0);
  moments_.length.assign(kHeadDim / 2, 0.0);
  for (int t = 0; t < 2; ++t) {
    std::array<double, kRows> weight{};
    double sum = 0;
    for (int row = 0; row <= query_positions_[t]; ++row) {
      weight[row] = std::exp(kQueries[t][0] * kKeys[row][0] + kQueries[t][1] * kKeys[row][1]);
      sum += weight[row];
    }
    moments_.length[0] += std::hypot(kQueries[t][0], kQueries[t][1]);
    for (int j = 0; j < 2; ++j) {
      double y = 0;
      for (int row = 0; row < kRows; ++row)
        y += weight[row] / sum * kValues[row][j];
      q_[t * kHeadDim + j] = kQueries[t][j];
      y_[t * kHeadDim + j] = static_cast<float>(y);
      moments_.sum[j] += kQueries[t][j];
      for (int k = 0; k < 2; ++k)
        moments_.outer[j * kHeadDim + k] += double{kQueries[t][j]} * kQueries[t][k];
    }
  }
  w_o_[0] = 1;          // [dimension 0][embd 0]
  w_o_[kEmbd + 1] = 2;  // [dimension 1][embd 1]
  rotation_.frequency.assign(kHeadDim / 2, 0.0F);
  input_ = {.rows = {.blocks = block_.bytes,
                     .positions = positions_.data(),
                     .block_ids = &block_id_,
                     .n_rows = kRows,
                     .head_dim = kHeadDim,
                     .type = RowType::f16},
            .q = q_.data(),
            .y = y_.data(),
            .query_positions = query_positions_.data(),
            .n_window = 2,
            .n_tokens = kRows,
            .is_protected = is_protected_,
            .kernels = &best_attention_kernels(),
            .attention_sum = attention_sum_,
            .past = past_,
            .echo = echo_,
            .reconstruction = reconstruction_,
            .gate = gate_,
            .moments = &moments_,
            .rotation = &rotation_,
            .w_o = w_o_.data(),
            .n_embd = kEmbd,
            .tokens = tokens_,
            .token_kinds = token_kinds_};
}

std::vector<float> example_scores(const Scorer& scorer) {
  const ExampleHead head;
  std::vector<float> score(ExampleHead::kRows);
  scorer.score(head.input(), score);
  return score;
}

}  // namespace kedge::eviction
