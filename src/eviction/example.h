// Six rows that every scorer's worked example is about (Method::example), small enough to check by hand.
//
//   row        0    1    2    3    4    5      queries 0 and 1 stand at positions 4 and 5; one query head; scale 1
//   key x      2    0    1    0    1    0      query 0 = (1, 0), query 1 = (1, 1) in the dimensions x, y
//   key y      0    1    0    0    1    1      so the logits are 2 0 1 0 1 - and 2 1 1 0 2 1
//   value x    1    2   -1    4    0    1      all other dimensions are 0
//   value y    0    1    1    0    2   -2
//
// Row 0 is a sink, row 3 has a large value that nobody looks at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "eviction/policy.h"

namespace kedge::eviction {

class ExampleHead {
 public:
  static constexpr int kRows = 6;
  static constexpr int kHeadDim = 16;
  static constexpr int kEmbd = 2;  // w_o writes value x to the first and 2 * value y to the second model dimension

  ExampleHead();
  ExampleHead(const ExampleHead&) = delete;
  ExampleHead& operator=(const ExampleHead&) = delete;

  // Everything that a scorer may ask for. attention_sum 3.0 1.6 1.2 0.4 0.8 0.1; reconstruction 0.9 0.2 0.6 0.1 0.3
  // 0.05; past 0.5 0.3 0.2 0.1 0.3 0.1; echo 0.8 0.1 0.5 0.1 0.2 0.1; moments of the two queries; no rotation
  // (frequency 0); tokens 10..15; row 1 is punctuation, row 0 special.
  const HeadInput& input() const { return input_; }

 private:
  struct alignas(64) Block {
    std::byte bytes[static_cast<size_t>(kHeadDim) * kBlockRows * kRowTypeBytes * 2];
  };
  Block block_{};
  std::vector<int32_t> positions_;
  uint32_t block_id_ = 0;
  std::vector<float> q_, y_;
  std::vector<int32_t> query_positions_, tokens_;
  std::vector<uint8_t> token_kinds_, is_protected_;
  std::vector<float> attention_sum_, past_, echo_, reconstruction_, gate_, w_o_;
  QueryMoments moments_;
  Rotation rotation_;
  HeadInput input_;
};

// The scores of a scorer on these rows, sinks and recent rows unprotected. f32 [6].
std::vector<float> example_scores(const Scorer& scorer);

}  // namespace kedge::eviction
