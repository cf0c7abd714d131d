#include "eviction/share_layers.h"

#include <algorithm>

#include "base/check.h"
#include "eviction/compete.h"

namespace kedge::eviction {
namespace {

std::vector<std::vector<uint8_t>> protection_flags(const LayerInput& all, std::span<const SharedLayer> layers) {
  const Protection protection = affordable_protection(all);
  std::vector<std::vector<uint8_t>> flags;
  for (const SharedLayer& layer : layers) {
    for (size_t h = 0; h < layer.score.size(); ++h) {
      const HeadInput& head = all.heads[flags.size()];
      auto& own = flags.emplace_back(protected_rows(all, protection, head));
      for (int32_t row = head.rows.n_rows; row-- > 0 && head.rows.position(row) >= layer.scored_tokens;)
        own[static_cast<size_t>(row)] = std::max<uint8_t>(own[static_cast<size_t>(row)], 1);
    }
  }
  return flags;
}

std::vector<int32_t> whole_blocks(const LayerInput& all, std::span<const std::vector<uint8_t>> flags,
                                  std::vector<int32_t> rows) {
  RoundInput round{
      .rows = std::move(rows), .minimum = {}, .available = {}, .growth = all.growth, .blocks_total = all.blocks_total};
  for (const auto& own : flags) {
    round.minimum.push_back(minimum_rows(own, own.size()));
    round.available.push_back(static_cast<int32_t>(own.size()));
  }
  return round_to_blocks(round);
}

}  // namespace

Division divide_layers(const Allocator& allocator, const LayerInput& all, std::span<const SharedLayer> layers,
                       Executor& executor) {
  std::vector<std::vector<uint8_t>> flags = protection_flags(all, layers);
  check(flags.size() == all.heads.size(), "the heads are those of the layers");
  std::vector<LayerScores> scores;
  std::vector<std::span<const float>> score_of;  // [head]
  size_t head = 0;
  for (const SharedLayer& layer : layers) {
    LayerScores& own = scores.emplace_back();
    own.layer = layer.layer;
    own.n_layers = all.heads[head].n_layers;
    own.measured = layer.measured;
    own.demand = layer.demand;
    for (const auto& score : layer.score) {
      check(score.size() == flags[head].size(), "one score per row");
      own.score.emplace_back(score);
      own.is_protected.emplace_back(flags[head++]);
      score_of.emplace_back(score);
    }
  }
  std::vector<int32_t> rows;
  for (const auto& own : allocator.allocate_layers(scores, rows_total_of(all)))
    rows.insert(rows.end(), own.begin(), own.end());
  check(rows.size() == flags.size(), "the allocator names every head");
  if (all.rows_total == 0)
    rows = whole_blocks(all, flags, std::move(rows));
  std::vector<std::vector<int32_t>> keep(rows.size());
  for_each_index(executor, static_cast<int>(rows.size()), [&](int i) {
    const auto h = static_cast<size_t>(i);
    keep[h] = select(score_of[h], flags[h], std::max<int64_t>(rows[h], 1), 1);
  });
  return {.keep = std::move(keep), .is_protected = std::move(flags)};
}

}  // namespace kedge::eviction
