#include "eviction/explain.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "eviction/select.h"
#include "eviction/window_scorer.h"

namespace kedge::eviction {

std::vector<int32_t> keep_order(std::span<const float> score, int chunk) {
  const std::vector<uint8_t> is_protected(score.size(), 0);
  std::vector<int32_t> order;
  std::vector<uint8_t> is_kept(score.size(), 0);
  for (size_t k = 1; k <= score.size(); ++k) {
    for (const int32_t row : select(score, is_protected, static_cast<int64_t>(k), chunk)) {
      if (is_kept[static_cast<size_t>(row)] == 0)
        order.push_back(row);
      is_kept[static_cast<size_t>(row)] = 1;
    }
  }
  return order;
}

std::vector<float> score_ranks(std::span<const float> score, std::span<const uint8_t> is_protected, int64_t n_dropped) {
  std::vector<size_t> rivals;
  for (size_t i = 0; i < score.size(); ++i) {
    if (is_protected.empty() || is_protected[i] == 0)
      rivals.push_back(i);
  }
  std::stable_sort(rivals.begin(), rivals.end(), [&](size_t a, size_t b) {
    if (std::isnan(score[a]) || std::isnan(score[b]))
      return !std::isnan(score[a]) && std::isnan(score[b]);
    return score[a] > score[b];
  });
  std::vector<float> rank(score.size(), -1.0F);
  const int64_t below_best = std::max<int64_t>(static_cast<int64_t>(rivals.size()) + n_dropped - 1, 1);
  for (size_t place = 0; place < rivals.size(); ++place)
    rank[rivals[place]] = 1.0F - static_cast<float>(place) / static_cast<float>(below_best);
  return rank;
}

std::vector<float> attention_part(const HeadInput& in, int pool) {
  const auto n_rows = static_cast<size_t>(in.rows.n_rows);
  std::vector<float> sum(n_rows, 0.0F);
  for_weight_batches(in, 0, in.n_window, [&](int, int, std::span<float> a) {
    for (size_t at = 0; at < a.size(); at += n_rows) {
      const std::span<float> row = a.subspan(at, n_rows);
      max_pool(row, pool);
      for (size_t i = 0; i < n_rows; ++i)
        sum[i] += row[i];
    }
  });
  return sum;
}

std::vector<ScorePart> WindowScorer::explain(const HeadInput& in, std::span<const float> score) const {
  const HeadInput head = last_queries(in, window_);
  if (head.n_window == 0)
    return {};
  const PartNames names = part_names();
  std::vector<float> attention = attention_part(head, names.pool);
  std::vector<ScorePart> parts;
  if (!names.per_attention.empty()) {
    ScorePart part{.name = names.per_attention, .value = std::vector<float>(attention.size(), 0.0F)};
    for (size_t i = 0; i < attention.size(); ++i)
      part.value[i] = attention[i] > 0 ? score[i] / attention[i] : 0.0F;
    parts.push_back(std::move(part));
  }
  const auto n = static_cast<float>(head.n_window * head.group);
  for (float& value : attention)
    value /= n;
  parts.insert(parts.begin(), {.name = "attention", .value = std::move(attention)});
  return parts;
}

}  // namespace kedge::eviction
