#include "session/ledger.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "eviction/explain.h"

namespace kedge::session {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

void grow(std::vector<float>& values, size_t n, float fill) {
  if (values.size() < n)
    values.resize(n, fill);
}

// Positions up to the newest row's.
size_t n_positions(const KvHeadView& rows) {
  return rows.n_rows == 0 ? 0 : static_cast<size_t>(rows.position(rows.n_rows - 1)) + 1;
}

}  // namespace

Ledger::Ledger(int n_layers, int n_kv_heads, bool explains)
    : explains_(explains), layers_(static_cast<size_t>(n_layers)) {
  for (Layer& layer : layers_)
    layer.heads.resize(static_cast<size_t>(n_kv_heads));
}

void Ledger::record(int layer, const eviction::LayerInput& in, const eviction::LayerDecision& decision) {
  Layer& of = layers_[static_cast<size_t>(layer)];
  ++of.evictions;
  record_parts(layer, in, decision.parts);
  for (size_t h = 0; h < of.heads.size(); ++h) {
    count(of.heads[h], decision, h);
    if (explains_)
      judge(of.heads[h], in.heads[h], decision, h);
  }
}

void Ledger::count(Head& head, const eviction::LayerDecision& decision, size_t h) const {
  if (decision.keep[h].size() == decision.score[h].size())
    return;
  ++head.evictions;
  double sum = 0;
  double least = std::numeric_limits<double>::infinity();
  int64_t n = 0;
  for (const int32_t row : decision.keep[h]) {
    const auto i = static_cast<size_t>(row);
    if (decision.is_protected[h][i] != 0 || std::isnan(decision.score[h][i]))
      continue;
    sum += decision.score[h][i];
    least = std::min<double>(least, decision.score[h][i]);
    ++n;
  }
  head.mean_kept = n > 0 ? sum / static_cast<double>(n) : 0;
  head.min_kept = n > 0 ? least : 0;
}

void Ledger::judge(Head& head, const eviction::HeadInput& in, const eviction::LayerDecision& decision, size_t h) {
  // Those of an earlier eviction that are no longer there stand below whoever survived it.
  int64_t n_dropped = std::ranges::count_if(head.rank, [](float rank) { return rank >= 0; });
  for (int32_t row = 0; row < in.rows.n_rows; ++row) {
    const auto position = static_cast<size_t>(in.rows.position(row));
    n_dropped -= position < head.rank.size() && head.rank[position] >= 0 ? 1 : 0;
  }
  const std::vector<float> rank = eviction::score_ranks(decision.score[h], decision.is_protected[h], n_dropped);
  const size_t n = n_positions(in.rows);
  grow(head.rank, n, -1);
  grow(head.score, n, kNaN);
  for (size_t i = 0; i < rank.size(); ++i) {
    if (rank[i] < 0)
      continue;
    const auto position = static_cast<size_t>(in.rows.position(static_cast<int32_t>(i)));
    head.rank[position] = rank[i];
    head.score[position] = decision.score[h][i];
  }
}

void Ledger::record_parts(int layer, const eviction::LayerInput& in,
                          std::span<const std::vector<eviction::ScorePart>> parts) {
  for (size_t h = 0; explains_ && h < parts.size(); ++h) {
    if (part_names_.empty()) {
      for (const eviction::ScorePart& part : parts[h])
        part_names_.push_back(part.name);
    }
    const KvHeadView& rows = in.heads[h].rows;
    const size_t n = n_positions(rows);
    Head& head = layers_[static_cast<size_t>(layer)].heads[h];
    head.parts.resize(part_names_.size());
    for (size_t p = 0; p < part_names_.size(); ++p) {  // an eviction cut short by its time limit has other parts
      const bool same = p < parts[h].size() && parts[h][p].name == part_names_[p];
      grow(head.parts[p], n, kNaN);
      for (int32_t row = 0; row < rows.n_rows; ++row)
        head.parts[p][static_cast<size_t>(rows.position(row))] =
            same ? parts[h][p].value[static_cast<size_t>(row)] : kNaN;
    }
  }
}

void Ledger::forget(int64_t n_tokens) {
  const auto cut = [n_tokens](std::vector<float>& values) {
    values.resize(std::min(values.size(), static_cast<size_t>(n_tokens)));
  };
  for (Layer& layer : layers_) {
    for (Head& head : layer.heads) {
      cut(head.rank);
      cut(head.score);
      for (std::vector<float>& values : head.parts)
        cut(values);
    }
  }
}

std::vector<LayerStats> Ledger::layer_stats(const KvMap& held) const {
  std::vector<LayerStats> out;
  for (size_t l = 0; l < layers_.size(); ++l) {
    LayerStats layer{.evictions = layers_[l].evictions, .policy_ms = layers_[l].ms, .heads = {}};
    for (size_t h = 0; h < layers_[l].heads.size(); ++h) {
      const Head& head = layers_[l].heads[h];
      const auto rows = static_cast<int64_t>(held.layers[l][h].size());
      layer.heads.push_back({.rows = rows,
                             .evicted = held.n_tokens - rows,
                             .evictions = head.evictions,
                             .mean_kept_score = head.mean_kept,
                             .min_kept_score = head.min_kept});
    }
    out.push_back(std::move(layer));
  }
  return out;
}

std::vector<Ledger::Chosen> Ledger::chosen(const ExplainOptions& options) const {
  std::vector<Chosen> out;
  for (int layer = 0; layer < static_cast<int>(layers_.size()); ++layer) {
    const auto n_heads = static_cast<int>(layers_[static_cast<size_t>(layer)].heads.size());
    for (int head = 0; head < n_heads; ++head) {
      if ((options.layer < 0 || options.layer == layer) && (options.head < 0 || options.head == head))
        out.push_back({.layer = layer, .head = head});
    }
  }
  return out;
}

// Means over the heads that judged a token, in order of position.
std::vector<ExplainedToken> Ledger::judged(std::span<const Chosen> heads, std::span<const Token> tokens) const {
  std::vector<ExplainedToken> out;
  for (size_t position = 0; position < tokens.size(); ++position) {
    ExplainedToken row{.position = static_cast<int32_t>(position),
                       .token = tokens[position],
                       .parts = std::vector<double>(part_names_.size(), 0.0),
                       .held_by = {}};
    std::vector<int> n_said(part_names_.size(), 0);
    for (const Chosen& at : heads) {
      const Head& head = layers_[static_cast<size_t>(at.layer)].heads[static_cast<size_t>(at.head)];
      if (position >= head.rank.size() || head.rank[position] < 0)
        continue;
      ++row.n_judged;
      row.rank += head.rank[position];
      row.score += head.score[position];
      for (size_t p = 0; p < head.parts.size(); ++p) {
        const float value = position < head.parts[p].size() ? head.parts[p][position] : kNaN;
        n_said[p] += std::isnan(value) ? 0 : 1;
        row.parts[p] += std::isnan(value) ? 0 : value;
      }
    }
    if (row.n_judged == 0)
      continue;
    row.rank /= row.n_judged;
    row.score /= row.n_judged;
    for (size_t p = 0; p < row.parts.size(); ++p)
      row.parts[p] = n_said[p] > 0 ? row.parts[p] / n_said[p] : double{kNaN};
    out.push_back(std::move(row));
  }
  return out;
}

Explanation Ledger::explain(const ExplainOptions& options, const KvMap& held, std::span<const Token> tokens) const {
  const std::vector<Chosen> heads = chosen(options);
  std::vector<ExplainedToken> all = judged(heads, tokens);
  Explanation out{.n_tokens = held.n_tokens,
                  .n_judged = static_cast<int64_t>(all.size()),
                  .n_layers = static_cast<int>(layers_.size()),
                  .n_heads = static_cast<int>(heads.size()),
                  .part_names = part_names_,
                  .best = {},
                  .worst = {}};
  std::ranges::stable_sort(all, [](const auto& a, const auto& b) { return a.rank > b.rank; });
  const size_t n_best = std::min(all.size(), static_cast<size_t>(options.n));
  const size_t n_worst = std::min(all.size() - n_best, static_cast<size_t>(options.n));
  out.best.assign(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(n_best));
  out.worst.assign(all.rbegin(), all.rbegin() + static_cast<std::ptrdiff_t>(n_worst));
  for (std::vector<ExplainedToken>* list : {&out.best, &out.worst}) {
    for (ExplainedToken& row : *list) {
      for (const Chosen& at : heads) {
        const auto& rows = held.layers[static_cast<size_t>(at.layer)][static_cast<size_t>(at.head)];
        if (std::ranges::binary_search(rows, row.position))
          row.held_by.emplace_back(at.layer, at.head);
      }
    }
  }
  return out;
}

}  // namespace kedge::session
