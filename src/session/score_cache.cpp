// Scores that rows keep between evictions (eviction/rescore.h): which of them an eviction may use.
#include <algorithm>

#include "session/timeline.h"

namespace kedge::session {
namespace {

constexpr int32_t kMostNewcomers =
    4;  // 1 / of a head's rows: beyond that the rows without a score are too many to stay

}  // namespace

// Chooses how the layer is scored and hands over the scores that its rows have. While a prompt is read every eviction
// scores all rows from the whole window: its queries are many and new.
eviction::Scoring Timeline::take_cached(eviction::LayerInput& in, CachedScores& cached) {
  const eviction::Caching caching = policy_.scorer->caching();
  const int layer = in.heads.front().layer;
  schedule_.scored_at.resize(static_cast<size_t>(engine_.model->hyper().n_layers), 0);
  const int64_t scored_at = schedule_.scored_at[static_cast<size_t>(layer)];
  const bool is_reading = in.heads.front().n_tokens > n_tokens_;
  if (caching.refresh <= 0 || is_reading || scored_at <= 0)
    return eviction::Scoring::all;
  bool is_fresh = n_tokens_ - scored_at < caching.refresh;
  for (eviction::HeadInput& head : in.heads) {
    int32_t n_scored = head.rows.n_rows;
    while (n_scored > 0 && head.rows.position(n_scored - 1) >= scored_at)
      --n_scored;
    std::vector<float>& scores = cached.emplace_back(store_->notes(sequence_, layer, head.head, kv::kScoreNote));
    scores.resize(static_cast<size_t>(n_scored));
    is_fresh = is_fresh && (head.rows.n_rows - n_scored) * kMostNewcomers <= head.rows.n_rows;
  }
  for (size_t h = 0; h < cached.size(); ++h)
    in.heads[h].cached = cached[h];
  return is_fresh ? eviction::Scoring::cached : eviction::Scoring::sampled;
}

void Timeline::note_scored(const eviction::LayerInput& in, bool by_policy) {
  schedule_.scored_at.resize(static_cast<size_t>(engine_.model->hyper().n_layers), 0);
  int64_t& scored_at = schedule_.scored_at[static_cast<size_t>(in.heads.front().layer)];
  if (!by_policy)
    scored_at = 0;
  else if (in.scoring != eviction::Scoring::cached)
    scored_at = in.heads.front().n_tokens;
}

// Rows beyond the sequence's end are gone, and what comes in their place has no score.
void Timeline::forget_scores() {
  for (int64_t& scored_at : schedule_.scored_at)
    scored_at = std::min(scored_at, n_tokens_);
}

}  // namespace kedge::session
