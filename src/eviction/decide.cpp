// One layer's eviction: scores -> allocator -> rounding -> select.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "eviction/compete.h"
#include "eviction/rescore.h"
#include "eviction/select.h"
#include "eviction/window_scorer.h"

namespace kedge::eviction {
namespace {

constexpr int kMostParts = 4;                      // of one head's window
constexpr int kPartQueries = 8;                    // at least, so that a part still reads K once for many queries
constexpr int64_t kPartFloats = int64_t{1} << 20;  // partial sums of one head: 4 MiB

// Into how many parts a head's window is cut: by geometry alone, so that the sums are the same for any thread count.
int part_count(const Scorer& scorer, const HeadInput& in) {
  if (!scorer.splits_by_query() || in.n_window == 0)
    return 1;
  const int64_t by_memory = std::max<int64_t>(kPartFloats / std::max(in.rows.n_rows, 1), 1);
  return static_cast<int>(std::min<int64_t>({kMostParts, (in.n_window + kPartQueries - 1) / kPartQueries, by_memory}));
}

struct ScoreItem {
  size_t head = 0;
  int part = 0;
  int n_parts = 1;
  std::vector<float> sum;  // parts after the first: f32 [n_rows]
};

void score_heads(const Scorer& scorer, const std::vector<HeadInput>& heads, Executor& executor,
                 std::vector<std::vector<float>>& score) {
  std::vector<ScoreItem> items;
  for (size_t h = 0; h < heads.size(); ++h) {
    score[h].assign(static_cast<size_t>(heads[h].rows.n_rows), 0.0F);
    const int n_parts = part_count(scorer, heads[h]);
    for (int part = 0; part < n_parts; ++part)
      items.push_back({.head = h, .part = part, .n_parts = n_parts, .sum = {}});
  }
  for_each_index(executor, static_cast<int>(items.size()), [&](int i) {
    ScoreItem& item = items[static_cast<size_t>(i)];
    const HeadInput& in = heads[item.head];
    if (item.n_parts == 1)
      return scorer.score(in, score[item.head]);
    if (item.part > 0)
      item.sum.assign(score[item.head].size(), 0.0F);
    const Share share = share_of(in.n_window, item.part, item.n_parts);
    scorer.add_queries(in, static_cast<int>(share.begin), static_cast<int>(share.end),
                       item.part > 0 ? item.sum : score[item.head]);
  });
  for_each_index(executor, static_cast<int>(heads.size()), [&](int h) {
    bool is_split = false;
    std::vector<float>& sum = score[static_cast<size_t>(h)];
    for (const ScoreItem& item : items) {  // in order of parts
      if (item.head != static_cast<size_t>(h) || item.part == 0)
        continue;
      is_split = true;
      for (size_t i = 0; i < sum.size(); ++i)
        sum[i] += item.sum[i];
    }
    if (is_split)
      scorer.finish(heads[static_cast<size_t>(h)], sum);
  });
#ifndef NDEBUG
  for (const auto& one : score) {
    check(std::all_of(one.begin(), one.end(), [](float s) { return std::isfinite(s); }), "scores are finite");
  }
#endif
}

// How many rows each head must keep for some protection, and whether the layer has room for that.
struct Room {
  const LayerInput& in;
  int64_t total_rows = 0;
  std::vector<std::vector<int32_t>> pinned_before = {};  // [head][row]: pinned rows before it; empty: none are

  Room(const LayerInput& layer, int64_t total) : in(layer), total_rows(total) {
    for (size_t h = 0; !in.pinned.empty() && h < in.heads.size(); ++h) {
      std::vector<uint8_t> flags(static_cast<size_t>(in.heads[h].rows.n_rows), 0);
      mark_pinned(in.heads[h].rows, in.pinned, flags);
      std::vector<int32_t>& before = pinned_before.emplace_back(1, 0);
      for (const uint8_t flag : flags)
        before.push_back(before.back() + (flag != 0 ? 1 : 0));
    }
  }

  int32_t minimum(size_t h, int n_sinks, int n_recent) const {
    const HeadInput& head = in.heads[h];
    int64_t n = 0;
    while (n < head.rows.n_rows && head.rows.position(static_cast<int32_t>(n)) < n_sinks)
      ++n;
    const int64_t first_recent = std::max<int64_t>(n, int64_t{head.rows.n_rows} - n_recent);
    if (!pinned_before.empty())
      n += pinned_before[h][static_cast<size_t>(first_recent)] - pinned_before[h][static_cast<size_t>(n)];
    n += n_recent;
    return static_cast<int32_t>(std::min<int64_t>(std::max<int64_t>(n, 1), head.rows.n_rows));
  }
  bool fits(int n_sinks, int n_recent) const {
    int64_t rows = 0;
    int64_t blocks = 0;
    for (size_t h = 0; h < in.heads.size(); ++h) {
      const int64_t least = minimum(h, n_sinks, n_recent);
      rows += least;
      blocks += (least + in.growth + kBlockRows - 1) / kBlockRows;
    }
    return rows <= total_rows && (in.rows_total > 0 || blocks <= in.blocks_total);
  }
};

// The largest n in 0..most with fits(n); 0 if none.
template <typename Predicate>
int largest(int most, const Predicate& fits) {
  int lo = 0;
  int hi = most + 1;
  while (hi - lo > 1) {
    const int middle = lo + (hi - lo) / 2;
    (fits(middle) ? lo : hi) = middle;
  }
  return lo;
}

Protection affordable(const LayerInput& in, int64_t total_rows) {
  const Room room(in, total_rows);
  int32_t most_rows = 0;
  for (const HeadInput& head : in.heads)
    most_rows = std::max(most_rows, head.rows.n_rows);
  const Protection asked{.n_sinks = std::max(in.n_sinks, 0), .n_recent = std::clamp(in.n_recent, 0, most_rows)};
  if (room.fits(asked.n_sinks, asked.n_recent))
    return asked;
  if (!room.fits(asked.n_sinks, 0))
    return {.n_sinks = largest(asked.n_sinks, [&](int n) { return room.fits(n, 0); })};
  return {.n_sinks = asked.n_sinks,
          .n_recent = largest(asked.n_recent, [&](int n) { return room.fits(asked.n_sinks, n); })};
}

std::vector<int32_t> rows_per_head(const Policy& policy, const LayerInput& in, const LayerScores& scores,
                                   int64_t total_rows) {
  std::vector<int32_t> rows = policy.allocator->allocate(scores, total_rows);
  check(rows.size() == in.heads.size(), "the allocator names every head");
  if (in.rows_total > 0)
    return rows;
  RoundInput round{.rows = rows, .minimum = {}, .available = {}, .growth = in.growth, .blocks_total = in.blocks_total};
  for (size_t h = 0; h < rows.size(); ++h) {
    round.minimum.push_back(minimum_rows(scores.is_protected[h], scores.score[h].size()));
    round.available.push_back(static_cast<int32_t>(scores.score[h].size()));
  }
  return round_to_blocks(round);
}

// Rows per head that the layer may keep: what scorers in two stages split.
int32_t keep_share(const LayerInput& in) {
  const int64_t n_heads = std::max<int64_t>(static_cast<int64_t>(in.heads.size()), 1);
  return static_cast<int32_t>(std::min<int64_t>(rows_total_of(in) / n_heads, INT32_MAX));
}

}  // namespace

int64_t rows_total_of(const LayerInput& in) {
  const int64_t by_blocks = in.blocks_total * kBlockRows - static_cast<int64_t>(in.heads.size()) * in.growth;
  return std::max<int64_t>(in.rows_total > 0 ? in.rows_total : by_blocks, 0);
}

Protection affordable_protection(const LayerInput& in) { return affordable(in, rows_total_of(in)); }

std::vector<uint8_t> protected_rows(const LayerInput& in, const Protection& protection, const HeadInput& head) {
  std::vector<uint8_t> flags(static_cast<size_t>(head.rows.n_rows));
  mark_protected(head.rows, protection.n_sinks, protection.n_recent, flags);
  mark_pinned(head.rows, in.pinned, flags);
  return flags;
}

LayerScores scores_of(const ScoredLayer& layer) {
  LayerScores scores{
      .score = {}, .is_protected = {}, .chunk = layer.chunk, .measured = layer.measured, .demand = layer.demand};
  for (size_t h = 0; h < layer.score.size(); ++h) {
    scores.score.emplace_back(layer.score[h]);
    scores.is_protected.emplace_back(layer.is_protected[h]);
  }
  return scores;
}

namespace {

// Scores of all heads, or what they keep of earlier ones (LayerInput::scoring).
void score_or_keep(const Scorer& scorer, const LayerInput& in, const std::vector<HeadInput>& heads, Executor& executor,
                   ScoredLayer& layer) {
  if (in.scoring != Scoring::cached) {
    score_heads(scorer, heads, executor, layer.score);
    if (scorer.has_one_list())
      average_over_heads(heads, layer.score);
  }
  for (size_t h = 0; h < heads.size(); ++h) {
    std::vector<float>& score = layer.score[h];
    score.resize(static_cast<size_t>(heads[h].rows.n_rows));
    if (in.scoring == Scoring::cached)
      use_cached(in.heads[h].cached, score, layer.is_protected[h]);
    if (in.scoring == Scoring::sampled)
      blend(in.heads[h].cached, scorer.caching().memory, window_share(scorer, in.heads[h], heads[h]), score);
  }
}

}  // namespace

ScoredLayer score_layer(const Policy& policy, const LayerInput& in, Executor& executor) {
  const size_t n_heads = in.heads.size();
  const Protection protection = affordable_protection(in);
  const Scorer& scorer = *policy.scorer;
  const Allocator& allocator = *policy.allocator;

  ScoredLayer layer;
  layer.chunk = scorer.chunk();
  std::vector<HeadInput> heads;
  for (const HeadInput& head : in.heads)
    layer.is_protected.push_back(protected_rows(in, protection, head));
  const std::vector<SeenHead> seen = seen_heads(scorer, in);
  for (size_t h = 0; h < n_heads; ++h) {
    heads.push_back(seen[h].input());
    heads[h].is_protected = layer.is_protected[h];
    heads[h].n_keep = keep_share(in);
  }
  layer.score.resize(n_heads);
  layer.measured.resize(n_heads);
  score_or_keep(scorer, in, heads, executor, layer);

  const bool is_shared = allocator.layers() == Allocator::Layers::shared;
  if (is_shared && in.explain)
    layer.parts.resize(n_heads);
  for_each_index(executor, static_cast<int>(n_heads), [&](int i) {
    const size_t h = static_cast<size_t>(i);
    HeadInput head = last_queries(in.heads[h], allocator.needs().window);
    head.is_protected = layer.is_protected[h];
    layer.measured[h] = allocator.measure(head);
    if (is_shared) {
      if (in.explain)
        layer.parts[h] = scorer.explain(heads[h], layer.score[h]);
      spread_over_chunks(layer.is_protected[h], layer.chunk, layer.score[h]);
      allocator.make_comparable(head, layer.score[h]);
    }
  });
  if (is_shared) {
    layer.chunk = 1;
    layer.demand = allocator.demand(scores_of(layer));
  }
  return layer;
}

LayerDecision decide_layer(const Policy& policy, const LayerInput& in, Executor& executor) {
  ScoredLayer layer = score_layer(policy, in, executor);
  const std::vector<int32_t> rows = rows_per_head(policy, in, scores_of(layer), rows_total_of(in));
  LayerDecision decision;
  decision.keep.resize(in.heads.size());
  if (in.explain)
    decision.parts.resize(in.heads.size());
  for_each_index(executor, static_cast<int>(in.heads.size()), [&](int i) {
    const size_t h = static_cast<size_t>(i);
    const int64_t k = std::max<int64_t>(rows[h], 1);
    HeadInput head = last_queries(in.heads[h], policy.scorer->needs().window);
    head.is_protected = layer.is_protected[h];
    head.n_keep = keep_share(in);
    if (in.scoring != Scoring::cached)
      policy.scorer->refine(head, k, layer.score[h]);
    decision.keep[h] = select(layer.score[h], layer.is_protected[h], k, layer.chunk);
    if (in.explain)
      decision.parts[h] = policy.scorer->explain(head, layer.score[h]);
  });
  decision.score = std::move(layer.score);
  decision.is_protected = std::move(layer.is_protected);
  return decision;
}

}  // namespace kedge::eviction
