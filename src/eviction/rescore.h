// Scores that outlive an eviction. While tokens are decoded few rows are new, and the attention of 32 queries over all
// rows costs as much as 32 tokens' own. So rows keep their scores (a note of the store), and a refresh looks at a few
// queries of the window and moves each score part of the way:
//   score[i] = memory * score[i] + (1 - memory) * window / queries * (what the chosen queries say of i)
// Between refreshes the scores stay as they are, and rows that have none yet stay too, by index.
#pragma once

#include <span>
#include <vector>

#include "eviction/select.h"

namespace kedge::eviction {

// A head as its scorer sees it: the last queries of its window, or a few of them, evenly spread and ending with the
// newest. Owns the few.
class SeenHead {
 public:
  SeenHead(const HeadInput& in, int window);
  SeenHead(const HeadInput& in, int window, int n_queries);
  SeenHead(SeenHead&&) = default;
  SeenHead(const SeenHead&) = delete;
  const HeadInput& input() const { return input_; }

 private:
  std::vector<float> q_, y_;
  std::vector<int32_t> positions_;
  HeadInput input_;
};
std::vector<SeenHead> seen_heads(const Scorer& scorer, const LayerInput& in);

// Queries of the window for each one that was looked at.
float window_share(const Scorer& scorer, const HeadInput& in, const HeadInput& seen);

// cached f32 [n_scored]; score f32 [n_rows]: of the chosen queries on entry. scale = window / queries.
void blend(std::span<const float> cached, float memory, float scale, std::span<float> score);

// score := cached, 0 for rows that have none; these are marked protected.
void use_cached(std::span<const float> cached, std::span<float> score, std::span<uint8_t> is_protected);

}  // namespace kedge::eviction
