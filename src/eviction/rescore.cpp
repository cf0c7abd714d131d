#include "eviction/rescore.h"

#include <algorithm>
#include <cstddef>

#include "eviction/window_scorer.h"

namespace kedge::eviction {

SeenHead::SeenHead(const HeadInput& in, int window) : input_(last_queries(in, window)) {}

SeenHead::SeenHead(const HeadInput& in, int window, int n_queries) : SeenHead(in, window) {
  const HeadInput head = input_;
  const int n = std::min(n_queries, head.n_window);
  if (n <= 0 || n == head.n_window)
    return;
  const size_t floats = static_cast<size_t>(head.group) * static_cast<size_t>(head.rows.head_dim);
  for (int i = 0; i < n; ++i) {
    const int t = head.n_window - 1 - static_cast<int>(int64_t{n - 1 - i} * head.n_window / n);
    const size_t from = static_cast<size_t>(t) * floats;
    q_.insert(q_.end(), head.q + from, head.q + from + floats);
    y_.insert(y_.end(), head.y + from, head.y + from + floats);
    positions_.push_back(head.query_positions[t]);
  }
  input_.q = q_.data();
  input_.y = y_.data();
  input_.query_positions = positions_.data();
  input_.n_window = n;
}

std::vector<SeenHead> seen_heads(const Scorer& scorer, const LayerInput& in) {
  std::vector<SeenHead> seen;
  seen.reserve(in.heads.size());
  for (const HeadInput& head : in.heads) {
    if (in.scoring == Scoring::sampled)
      seen.emplace_back(head, scorer.needs().window, scorer.caching().queries);
    else
      seen.emplace_back(head, scorer.needs().window);
  }
  return seen;
}

float window_share(const Scorer& scorer, const HeadInput& in, const HeadInput& seen) {
  const int all = std::min(scorer.needs().window, in.n_window);
  return seen.n_window > 0 ? static_cast<float>(all) / static_cast<float>(seen.n_window) : 1.0F;
}

void blend(std::span<const float> cached, float memory, float scale, std::span<float> score) {
  for (size_t i = 0; i < score.size(); ++i) {
    const float fresh = score[i] * scale;
    score[i] = i < cached.size() ? memory * cached[i] + (1 - memory) * fresh : fresh;
  }
}

void use_cached(std::span<const float> cached, std::span<float> score, std::span<uint8_t> is_protected) {
  const size_t n = std::min(cached.size(), score.size());
  std::copy_n(cached.begin(), n, score.begin());
  std::fill(score.begin() + static_cast<ptrdiff_t>(n), score.end(), 0.0F);
  std::fill(is_protected.begin() + static_cast<ptrdiff_t>(n), is_protected.end(), uint8_t{1});
}

}  // namespace kedge::eviction
