// AnDPro and SnapKV once more: plain, slow, in double, straight from the formulas, sharing no code with the scorers,
// the allocators or select(). Both must keep the same rows.
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "eviction/select.h"
#include "eviction/synthetic_heads.h"

namespace kedge::eviction {
namespace {

struct ReferenceSpec {
  int window = 32;
  int pool = 7;
  int chunk = 4;
  double floor = 0;
  std::string anchor = "full";
  std::string pool_kind = "avg";  // SnapKV
};

using Scores = std::vector<std::vector<double>>;  // [head][row]
using Flags = std::vector<std::vector<bool>>;     // protected

Flags protect(const SyntheticLayer& layer, int n_sinks, int n_recent) {
  Flags flags;
  for (const auto& head : layer) {
    std::vector<bool> one;
    const int n = head->view.n_rows;
    for (int i = 0; i < n; ++i)
      one.push_back(head->row_positions[i] < n_sinks || i >= n - n_recent);
    flags.push_back(one);
  }
  return flags;
}

double pooled_weight(const SyntheticHead& head, int t, int g, int i, int pool) {
  double best = 0;
  for (int j = i - pool / 2; j <= i + pool / 2; ++j) {
    if (j >= 0 && j < head.view.n_rows)
      best = std::max(best, head.weight(t, g, j));
  }
  return best;
}

// f64 [group][head_dim] of query t
std::vector<std::vector<double>> anchor_of(const SyntheticHead& head, const HeadInput& in, int t,
                                           const ReferenceSpec& spec, const std::vector<bool>& is_protected) {
  const int d = head.view.head_dim;
  const int first = std::max(in.n_window - spec.window, 0);
  std::vector<std::vector<double>> anchor(in.group, std::vector<double>(d, 0.0));
  for (int g = 0; g < in.group; ++g) {
    for (int j = 0; j < d; ++j) {
      if (spec.anchor == "window") {
        for (int s = first; s < in.n_window; ++s)
          anchor[g][j] += in.y[(s * in.group + g) * d + j];
        anchor[g][j] /= in.n_window - first;
        continue;
      }
      anchor[g][j] = in.y[(t * in.group + g) * d + j];
      if (spec.anchor == "full")
        continue;
      for (int i = 0; i < head.view.n_rows; ++i) {
        if (is_protected[i])
          anchor[g][j] -= head.weight(t, g, i) * head.v[static_cast<size_t>(i) * d + j];
      }
    }
  }
  return anchor;
}

std::vector<double> andpro_scores(const SyntheticHead& head, const ReferenceSpec& spec,
                                  const std::vector<bool>& is_protected) {
  const HeadInput in = head.input();
  const int d = head.view.head_dim;
  std::vector<double> score(head.view.n_rows, 0.0);
  for (int t = std::max(in.n_window - spec.window, 0); t < in.n_window; ++t) {
    const auto anchor = anchor_of(head, in, t, spec, is_protected);
    for (int g = 0; g < in.group; ++g) {
      for (int i = 0; i < head.view.n_rows; ++i) {
        double dot = 0;
        for (int j = 0; j < d; ++j)
          dot += anchor[g][j] * head.v[static_cast<size_t>(i) * d + j];
        score[i] += pooled_weight(head, t, g, i, spec.pool) * dot;
      }
    }
  }
  return score;
}

std::vector<double> snapkv_scores(const SyntheticHead& head, const ReferenceSpec& spec) {
  const HeadInput in = head.input();
  const int first = std::max(in.n_window - spec.window, 0);
  const int n = head.view.n_rows;
  std::vector<double> mean;
  for (int i = 0; i < n && head.row_positions[i] < in.query_positions[first]; ++i) {
    double sum = 0;
    for (int t = first; t < in.n_window; ++t) {
      for (int g = 0; g < in.group; ++g)
        sum += head.weight(t, g, i);
    }
    mean.push_back(sum / ((in.n_window - first) * in.group));
  }
  const int m = static_cast<int>(mean.size());
  std::vector<double> score(n, 10.0);
  for (int i = 0; i < m; ++i) {
    double sum = 0;
    double best = 0;
    for (int j = std::max(i - spec.pool / 2, 0); j <= std::min(i + spec.pool / 2, m - 1); ++j) {
      sum += mean[j];
      best = std::max(best, mean[j]);
    }
    score[i] = spec.pool_kind == "max" ? best : sum / spec.pool;
  }
  return score;
}

struct Candidate {
  double sum = 0;
  int head = 0;
  std::vector<int> rows;
};

std::vector<Candidate> candidates(const Scores& score, const Flags& flags, int head, int chunk) {
  std::vector<Candidate> out;
  for (int begin = 0; begin < static_cast<int>(score[head].size()); begin += chunk) {
    Candidate one{.sum = 0, .head = head, .rows = {}};
    for (int i = begin; i < std::min(begin + chunk, static_cast<int>(score[head].size())); ++i) {
      if (flags[head][i])
        continue;
      one.sum += score[head][i];
      one.rows.push_back(i);
    }
    if (!one.rows.empty())
      out.push_back(one);
  }
  std::stable_sort(out.begin(), out.end(), [](const Candidate& a, const Candidate& b) { return a.sum > b.sum; });
  return out;
}

// Moves rows of the sorted candidates into `kept` until it took `rows`; the cut chunk gives its best rows.
void take(std::vector<Candidate>& sorted, int rows, const Scores& score, std::vector<std::vector<bool>>& kept) {
  for (Candidate& one : sorted) {
    std::stable_sort(one.rows.begin(), one.rows.end(),
                     [&](int a, int b) { return score[one.head][a] > score[one.head][b]; });
    while (rows > 0 && !one.rows.empty()) {
      kept[one.head][one.rows.front()] = true;
      one.rows.erase(one.rows.begin());
      --rows;
    }
  }
  std::erase_if(sorted, [](const Candidate& one) { return one.rows.empty(); });
}

// One top-k over all heads, each sure of its protected rows, one row, and floor * total / heads.
Flags keep_pooled(const Scores& score, const Flags& flags, int total, const ReferenceSpec& spec) {
  Flags kept = flags;
  std::vector<Candidate> all;
  int left = total;
  for (int h = 0; h < static_cast<int>(score.size()); ++h) {
    const int n_protected = static_cast<int>(std::count(flags[h].begin(), flags[h].end(), true));
    const int n = static_cast<int>(score[h].size());
    const int sure = std::max(
        {n_protected, 1, std::min(static_cast<int>(spec.floor * total / static_cast<double>(score.size())), n)});
    std::vector<Candidate> own = candidates(score, flags, h, spec.chunk);
    take(own, sure - n_protected, score, kept);
    left -= sure;
    all.insert(all.end(), own.begin(), own.end());
  }
  std::stable_sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) { return a.sum > b.sum; });
  take(all, left, score, kept);
  return kept;
}

Flags keep_uniform(const Scores& score, const Flags& flags, int per_head, const ReferenceSpec& spec) {
  Flags kept = flags;
  for (int h = 0; h < static_cast<int>(score.size()); ++h) {
    std::vector<Candidate> own = candidates(score, flags, h, spec.chunk);
    take(own, per_head - static_cast<int>(std::count(flags[h].begin(), flags[h].end(), true)), score, kept);
  }
  return kept;
}

// Equal sets, or sets that differ only in rows whose competing sums tie within 1e-6 of the largest. True if they are
// equal.
bool expect_same(const LayerDecision& decision, const Flags& kept, const Scores& score, const Flags& flags, int chunk) {
  std::vector<double> only_one;  // sums of the chunks of rows that only one side kept
  double scale = 0;
  bool is_equal = true;
  for (int h = 0; h < static_cast<int>(score.size()); ++h) {
    std::vector<bool> ours(score[h].size(), false);
    for (const int32_t row : decision.keep[h])
      ours[row] = true;
    for (const Candidate& one : candidates(score, flags, h, chunk)) {
      scale = std::max(scale, std::abs(one.sum));
      for (const int i : one.rows) {
        if (ours[i] != kept[h][i])
          only_one.push_back(one.sum);
      }
    }
    for (size_t i = 0; i < ours.size(); ++i) {
      is_equal = is_equal && ours[i] == kept[h][i];
      EXPECT_TRUE(ours[i] || !flags[h][i]);
    }
  }
  if (!only_one.empty()) {
    const auto [low, high] = std::minmax_element(only_one.begin(), only_one.end());
    EXPECT_LE(*high - *low, 1e-6 * scale);
  }
  return is_equal;
}

SyntheticLayer random_layer(std::mt19937& random) {
  SyntheticLayer layer;
  const int group = 1 + static_cast<int>(random() % 4);
  const int head_dim = random() % 2 == 0 ? 64 : 128;
  const int n_window = 1 + static_cast<int>(random() % 40);
  const int n_heads = 1 + static_cast<int>(random() % 3);
  for (int h = 0; h < n_heads; ++h) {
    SyntheticSpec spec;
    spec.n_rows = 60 + static_cast<int>(random() % 200);
    spec.head_dim = head_dim;
    spec.group = group;
    spec.n_window = n_window;
    spec.gap = 0.1 * static_cast<double>(random() % 6);
    spec.tail = static_cast<int>(random() % 50);
    spec.type = random() % 4 == 0 ? RowType::bf16 : RowType::f16;
    spec.seed = static_cast<uint32_t>(random());
    spec.head = h;
    layer.push_back(std::make_unique<SyntheticHead>(spec));
  }
  return layer;
}

int smallest_total(const Flags& flags) {
  int total = 0;
  for (const auto& one : flags)
    total += std::max(static_cast<int>(std::count(one.begin(), one.end(), true)), 1);
  return total;
}

TEST(Reference, AnDProKeepsTheSameRows) {
  std::mt19937 random(101);
  int n_equal = 0;
  constexpr int kCases = 240;
  const char* const anchors[] = {"full", "nonprotected", "window"};
  for (int round = 0; round < kCases; ++round) {
    const SyntheticLayer layer = random_layer(random);
    ReferenceSpec spec;
    spec.window = 1 + static_cast<int>(random() % 48);
    spec.pool = 1 + 2 * static_cast<int>(random() % 5);
    spec.chunk = 1 + static_cast<int>(random() % 6);
    spec.floor = random() % 2 == 0 ? 0 : 0.2;
    spec.anchor = anchors[round % 3];
    const int n_sinks = static_cast<int>(random() % 6);
    const int n_recent = static_cast<int>(random() % 30);
    const Flags flags = protect(layer, n_sinks, n_recent);
    Scores score;
    int n_rows = 0;
    for (size_t h = 0; h < layer.size(); ++h) {
      score.push_back(andpro_scores(*layer[h], spec, flags[h]));
      n_rows += layer[h]->view.n_rows;
    }
    // Enough that the floors fit beside the protected rows.
    const int least = smallest_total(flags) + static_cast<int>(spec.floor * n_rows);
    const int total = std::min(n_rows, least + static_cast<int>(random() % std::max(n_rows - least, 1)));
    const Policy policy = policy_of("andpro:window=" + std::to_string(spec.window) +
                                    ",pool=" + std::to_string(spec.pool) + ",chunk=" + std::to_string(spec.chunk) +
                                    ",floor=" + std::to_string(spec.floor) + ",anchor=" + spec.anchor);
    SerialExecutor executor;
    const LayerInput in{.heads = inputs_of(layer), .n_sinks = n_sinks, .n_recent = n_recent, .rows_total = total};
    const LayerDecision decision = decide_layer(policy, in, executor);
    n_equal += expect_same(decision, keep_pooled(score, flags, total, spec), score, flags, spec.chunk) ? 1 : 0;
    ASSERT_FALSE(HasFailure()) << "case " << round << " " << policy.text << " total " << total << " of " << n_rows;
  }
  EXPECT_GE(n_equal, kCases - 3);  // ties are rare
}

TEST(Reference, SnapKvKeepsTheSameRows) {
  std::mt19937 random(102);
  int n_equal = 0;
  constexpr int kCases = 200;
  for (int round = 0; round < kCases; ++round) {
    const SyntheticLayer layer = random_layer(random);
    ReferenceSpec spec;
    spec.window = 1 + static_cast<int>(random() % 48);
    spec.pool = 1 + 2 * static_cast<int>(random() % 5);
    spec.chunk = 1;
    spec.pool_kind = random() % 2 == 0 ? "avg" : "max";
    const int n_recent = static_cast<int>(random() % 30);
    const Flags flags = protect(layer, 0, n_recent);
    Scores score;
    int fewest = INT32_MAX;
    for (const auto& head : layer) {
      score.push_back(snapkv_scores(*head, spec));
      fewest = std::min(fewest, head->view.n_rows);
    }
    // Uniform: more than the window's rows (at most 40 queries), so that the scores decide.
    const int per_head = std::min(fewest, 45 + static_cast<int>(random() % 100));
    const Policy policy = policy_of("snapkv:window=" + std::to_string(spec.window) +
                                    ",pool=" + std::to_string(spec.pool) + ",pool_kind=" + spec.pool_kind);
    SerialExecutor executor;
    const LayerInput in{
        .heads = inputs_of(layer), .n_recent = n_recent, .rows_total = per_head * static_cast<int>(layer.size())};
    const LayerDecision decision = decide_layer(policy, in, executor);
    n_equal += expect_same(decision, keep_uniform(score, flags, per_head, spec), score, flags, 1) ? 1 : 0;
    ASSERT_FALSE(HasFailure()) << "case " << round << " " << policy.text << " per head " << per_head;
  }
  // Max-pooling makes true ties (neighbours share their maximum), which both break by position: still the same rows.
  EXPECT_GE(n_equal, kCases - 3);
}

}  // namespace
}  // namespace kedge::eviction
