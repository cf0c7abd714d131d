// The llama architecture in straight loops and double, with a list of visible positions per layer and kv head: what a
// session that evicted must still compute. Shares no code with the engine.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "support/tiny_model.h"

namespace kedge::test {

// [layer][kv head] -> positions, ascending
using Kept = std::vector<std::vector<std::vector<int32_t>>>;

class PlainLlama {
 public:
  // f32 weights only, no yarn. `f16_rows`: K and V are rounded as the engine stores them.
  explicit PlainLlama(const TinyWeights& weights, bool f16_rows = true);

  // Appends tokens and returns their logits [tokens.size()][n_vocab]. A query sees the rows of `kept` (positions before
  // this call) and those of this call up to itself.
  std::vector<std::vector<float>> append(std::span<const int32_t> tokens, const Kept& kept);
  Kept everything() const;  // all positions so far
  int n_tokens() const { return n_tokens_; }

 private:
  using Row = std::vector<double>;
  std::vector<Row> run_layer(size_t layer, const std::vector<Row>& x, const std::vector<std::vector<int32_t>>& kept);
  Row attend(size_t layer, const Row& q, int position, const std::vector<std::vector<int32_t>>& kept) const;
  void rope(Row& x, int n_heads, int position) const;

  const TinyWeights& weights_;
  bool f16_rows_;
  int n_tokens_ = 0;
  // [layer][position] -> [n_kv_heads * head_dim]
  std::vector<std::vector<Row>> k_, v_;
};

}  // namespace kedge::test
