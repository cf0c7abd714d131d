// Scorers that read histories, once more: plain, slow, in double, straight from the formulas.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numbers>
#include <numeric>

#include "eviction/select.h"
#include "eviction/synthetic_heads.h"

namespace kedge::eviction {
namespace {

constexpr int kCases = 200;

SyntheticSpec random_spec(uint32_t seed) {
  std::mt19937 random(seed);
  const auto draw = [&random](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  return {.n_rows = draw(1, 120), .head_dim = 16, .group = draw(1, 3), .n_window = draw(1, 12), .seed = seed};
}

std::vector<float> scores_of(const std::string& policy, const HeadInput& in) {
  std::vector<float> score(static_cast<size_t>(in.rows.n_rows));
  policy_of(policy).scorer->score(in, score);
  return score;
}

void expect_scores(const std::vector<float>& found, const std::vector<double>& expected, const std::string& where) {
  ASSERT_EQ(found.size(), expected.size()) << where;
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], 1e-4 + 1e-3 * std::abs(expected[i])) << where << " row " << i;
}

TEST(Histories, H2oIsAttentionPerQueryThatCouldSeeTheRow) {
  for (uint32_t seed = 0; seed < kCases; ++seed) {
    const SyntheticHead head(random_spec(seed));
    std::vector<double> seen, sum;
    for (size_t i = 0; i < head.attention_sum.size(); ++i) {
      sum.push_back(head.attention_sum[i]);
      seen.push_back(sum.back() / (head.n_tokens - head.row_positions[i]));
    }
    expect_scores(scores_of("h2o", head.input()), seen, "seen");
    expect_scores(scores_of("h2o:norm=sum", head.input()), sum, "sum");
  }
}

TEST(Histories, KvzipKeepsWhatNoRepetitionHasSeenTheNewestFirst) {
  for (uint32_t seed = 0; seed < kCases; ++seed) {
    const SyntheticHead head(random_spec(seed));
    std::vector<double> expected;
    for (size_t i = 0; i < head.reconstruction.size(); ++i) {
      const double age = static_cast<double>(head.row_positions[i]) / head.n_tokens;
      expected.push_back(head.reconstruction[i] > 0 ? head.reconstruction[i] : 1 + age);
    }
    expect_scores(scores_of("kvzip", head.input()), expected, "kvzip");
  }
}

// Dense: the mean rotation as a matrix, cov' = R cov R^T, k^T cov' k.
std::vector<double> expected_attention(const SyntheticHead& head, int future, bool covariance, bool vnorm) {
  const int d = 16;
  const int group = head.input().group;
  const int n = head.view.n_rows;
  std::vector<std::vector<double>> r(d, std::vector<double>(d, 0.0));
  for (int j = 0; j < d / 2; ++j) {
    for (int p = head.n_tokens; p < head.n_tokens + future; ++p) {
      const double angle = double{head.rotation.frequency[j]} * p;
      r[2 * j][2 * j] += std::cos(angle) / future;
      r[2 * j][2 * j + 1] -= std::sin(angle) / future;
      r[2 * j + 1][2 * j] += std::sin(angle) / future;
      r[2 * j + 1][2 * j + 1] += std::cos(angle) / future;
    }
  }
  std::vector<double> score(n, 0.0);
  const double count = static_cast<double>(head.moments.n_queries);
  for (int g = 0; g < group; ++g) {
    const auto mean = [&](int i) { return head.moments.sum[g * d + i] / count; };
    const auto cov = [&](int i, int j) { return head.moments.outer[(g * d + i) * d + j] / count - mean(i) * mean(j); };
    std::vector<double> logit(n, 0.0);
    for (int row = 0; row < n; ++row) {
      std::vector<double> turned(d, 0.0);  // R^T k
      for (int i = 0; i < d; ++i) {
        for (int j = 0; j < d; ++j)
          turned[j] += r[i][j] * head.k[row * d + i];
      }
      for (int i = 0; i < d; ++i) {
        logit[row] += turned[i] * mean(i) / 4;
        for (int j = 0; covariance && j < d; ++j)
          logit[row] += turned[i] * cov(i, j) * turned[j] / 32;
      }
    }
    const double top = *std::ranges::max_element(logit);
    double sum = 0;
    for (const double one : logit)
      sum += std::exp(one - top);
    for (int row = 0; row < n; ++row)
      score[row] += std::exp(logit[row] - top) / sum / group;
  }
  for (int row = 0; row < n && vnorm; ++row) {
    double square = 0;
    for (int j = 0; j < d; ++j)
      square += double{head.v[row * d + j]} * head.v[row * d + j];
    score[row] *= std::sqrt(square);
  }
  return score;
}

TEST(Histories, ExpectedAttentionIsTheGaussianMean) {
  for (uint32_t seed = 0; seed < kCases; ++seed) {
    const SyntheticHead head(random_spec(seed));
    const HeadInput in = head.input();
    expect_scores(scores_of("expected:future=64", in), expected_attention(head, 64, true, true), "default");
    expect_scores(scores_of("expected:future=7,covariance=off,vnorm=off", in),
                  expected_attention(head, 7, false, false), "mean alone");
  }
}

TEST(Histories, ExpectedAttentionLeavesProtectedSinksOutOfTheSoftmax) {
  const SyntheticHead head({.n_rows = 40, .head_dim = 16, .group = 1, .n_window = 8, .seed = 3});
  HeadInput in = head.input();
  const std::vector<float> all = scores_of("expected:vnorm=off", in);
  std::vector<uint8_t> is_protected(40, 0);
  is_protected[0] = is_protected[1] = 1;
  in.is_protected = is_protected;
  const std::vector<float> without = scores_of("expected:vnorm=off", in);
  const float rest = std::accumulate(all.begin() + 2, all.end(), 0.0F);
  for (size_t i = 2; i < all.size(); ++i)
    EXPECT_NEAR(without[i], all[i] / rest, 1e-5);
}

// Key by key and distance by distance, with the key turned back to position 0.
std::vector<double> tri_series(const SyntheticHead& head, int g, int farthest) {
  const int d = 16;
  const double count = static_cast<double>(head.moments.n_queries);
  std::vector<double> out(head.view.n_rows, 0.0);
  for (int row = 0; row < head.view.n_rows; ++row) {
    for (int f = 0; f < d / 2; ++f) {
      const double w = head.rotation.frequency[f];
      const double p = head.row_positions[row];
      const double x = head.k[row * d + 2 * f];
      const double y = head.k[row * d + 2 * f + 1];
      const double key_angle = std::atan2(y, x) - w * p;
      const double mean_x = head.moments.sum[g * d + 2 * f] / count;
      const double mean_y = head.moments.sum[g * d + 2 * f + 1] / count;
      const double centre = std::hypot(mean_x, mean_y);
      double mean_cos = 0;
      int n = 0;
      for (int64_t offset = 1; offset <= farthest; offset *= 2, ++n)
        mean_cos +=
            std::cos(w * (head.n_tokens + static_cast<double>(offset) - p) + std::atan2(mean_y, mean_x) - key_angle);
      out[row] += centre * std::hypot(x, y) * mean_cos / n;
      out[row] += (head.moments.length[g * d / 2 + f] / count - centre) * std::hypot(x, y);
    }
  }
  return out;
}

TEST(Histories, TriAttentionIsTheSeriesOfTheCentres) {
  for (uint32_t seed = 0; seed < kCases; ++seed) {
    SyntheticSpec spec = random_spec(seed);
    spec.n_rows += 10;
    const SyntheticHead head(spec);
    std::vector<double> expected(head.view.n_rows, -1e9);
    for (int g = 0; g < head.input().group; ++g) {
      const std::vector<double> s = tri_series(head, g, 1024);
      const double n = static_cast<double>(s.size());
      const double mean = std::accumulate(s.begin(), s.end(), 0.0) / n;
      double square = 0;
      for (const double one : s)
        square += (one - mean) * (one - mean) / n;
      for (size_t i = 0; i < s.size(); ++i)
        expected[i] = std::max(expected[i], (s[i] - mean) / std::sqrt(square));
    }
    expect_scores(scores_of("triattention:offsets=1024", head.input()), expected, "max");
  }
}

TEST(Histories, FastGenClimbsTheLadder) {
  for (uint32_t seed = 0; seed < kCases; ++seed) {
    const SyntheticHead head(random_spec(seed));
    const int n = head.view.n_rows;
    // Rows in the order in which the ladder takes them in.
    std::vector<int> by_attention(n);
    std::iota(by_attention.begin(), by_attention.end(), 0);
    std::ranges::stable_sort(by_attention, [&](int a, int b) { return head.attention_sum[a] > head.attention_sum[b]; });
    std::vector<int> ladder;
    const auto take = [&](int row) {
      if (std::ranges::find(ladder, row) == ladder.end())
        ladder.push_back(row);
    };
    for (const uint8_t kind : {kSpecialToken, kPunctuationToken}) {
      for (const int row : by_attention) {
        if (head.token_kinds[head.row_positions[row]] == kind)
          take(row);
      }
    }
    const auto share = static_cast<int>(std::floor(0.3 * n + 0.5));
    for (int rank = 0; rank < share; ++rank)
      take(by_attention[rank]);
    for (int row = n - 1; row >= n - share; --row)
      take(row);
    for (const int row : by_attention)
      take(row);
    const std::vector<float> score = scores_of("fastgen", head.input());
    std::vector<int> found(n);
    std::iota(found.begin(), found.end(), 0);
    std::ranges::stable_sort(found, [&](int a, int b) { return score[a] > score[b]; });
    EXPECT_EQ(found, ladder) << seed;
  }
}

TEST(Histories, VaseReservesLargeValuesAndRanksTheRestByAttention) {
  for (uint32_t seed = 0; seed < kCases; ++seed) {
    const SyntheticHead head(random_spec(seed));
    HeadInput in = head.input();
    in.n_keep = 20;
    const int n = head.view.n_rows;
    std::vector<double> attention(n, 0.0), range(n, 0.0);
    for (int i = 0; i < n; ++i) {
      for (int t = 0; t < in.n_window; ++t) {
        for (int g = 0; g < in.group; ++g)
          attention[i] += head.weight(t, g, i) / (in.n_window * in.group);
      }
      const auto [low, high] = std::ranges::minmax_element(std::span(head.v).subspan(i * 16, 16));
      range[i] = *high - *low;
    }
    const int reserved = std::min({7, 10, n});
    std::vector<double> expected(n);
    for (int i = 0; i < n; ++i) {
      int n_better = 0;
      for (int j = 0; j < n; ++j)
        n_better += range[j] > range[i] || (range[j] == range[i] && j < i) ? 1 : 0;
      expected[i] = n_better < reserved ? 1000 + range[i] : std::log(std::max(attention[i], 1e-30));
    }
    expect_scores(scores_of("vase:reserve=7,draw=off", in), expected, "reserve 7");
    const std::vector<float> capped = scores_of("vase:reserve=200", in);
    EXPECT_EQ(std::ranges::count_if(capped, [](float s) { return s > 500; }), std::min(10, n)) << "half of n_keep";
  }
}

// The row on top is drawn with a probability proportional to its attention.
TEST(Histories, VaseDrawsByAttention) {
  const SyntheticHead head({.n_rows = 12, .head_dim = 16, .group = 2, .n_window = 6, .gap = 0, .seed = 5});
  HeadInput in = head.input();
  const auto scorer = std::move(policy_of("vase:reserve=0").scorer);
  std::vector<double> attention(12, 0.0);
  for (int i = 0; i < 12; ++i) {
    for (int m = 0; m < 12; ++m)
      attention[i] += head.weights[m * 12 + i] / 12;
  }
  std::vector<int> wins(12, 0);
  constexpr int kDraws = 20000;
  std::vector<float> score(12);
  for (int i = 0; i < kDraws; ++i) {
    in.n_tokens = head.n_tokens + i;  // each length draws anew
    scorer->score(in, score);
    ++wins[std::ranges::max_element(score) - score.begin()];
  }
  for (int i = 0; i < 12; ++i) {
    const double deviation = std::sqrt(attention[i] * (1 - attention[i]) / kDraws);
    EXPECT_NEAR(wins[i] / static_cast<double>(kDraws), attention[i], 5 * deviation + 1e-3) << i;
  }
  std::vector<float> again(12);
  scorer->score(in, again);
  EXPECT_EQ(score, again);
}

class DuoRoles : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/kedge-roles-XXXXXX";
    const int file = mkstemp(name);
    ASSERT_GE(file, 0);
    path_ = name;
  }
  void TearDown() override { std::filesystem::remove(path_); }
  std::string option(const std::string& content) {
    std::ofstream(path_) << content;
    std::string text = path_;
    for (size_t at = text.find('/'); at != std::string::npos; at = text.find('/'))
      text.replace(at, 1, "%2F");
    return "duo:roles=" + text;
  }
  std::string error_of(const std::string& content) {
    const auto policy = parse_policy(option(content), {});
    return policy ? "no error" : policy.error().message;
  }
  std::string path_;
};

TEST_F(DuoRoles, StreamingHeadsGiveTheirRowsToRetrievalHeads) {
  const std::string text = option("# roles\n5 0 streaming  # a comment\n\n5 1 retrieval\n");
  SyntheticLayer layer;
  for (int head = 0; head < 2; ++head) {
    layer.push_back(std::make_unique<SyntheticHead>(
        SyntheticSpec{.n_rows = 100, .head_dim = 16, .group = 2, .gap = 0, .seed = 6U + head, .head = head}));
  }
  const Policy policy = policy_of(text + ",recent=10");
  SerialExecutor executor;
  const LayerDecision decision =
      decide_layer(policy, {.heads = inputs_of(layer), .n_sinks = 4, .n_recent = 10, .rows_total = 100}, executor);
  std::vector<int32_t> sinks_and_recent = {0, 1, 2, 3};
  for (int32_t row = 90; row < 100; ++row)
    sinks_and_recent.push_back(row);
  EXPECT_EQ(decision.keep[0], sinks_and_recent);
  EXPECT_EQ(decision.keep[1].size(), 86U);
}

TEST_F(DuoRoles, AreCheckedLineByLine) {
  EXPECT_EQ(error_of("0 0 streaming\n"), "no error");
  EXPECT_THAT(error_of("0 0 streaming\n0 1 retrival\n"),
              testing::HasSubstr(", line 2: found '0 1 retrival', allowed LAYER HEAD retrieval|streaming"));
  EXPECT_THAT(error_of("0 0 streaming\n0 0 retrieval\n"), testing::HasSubstr("line 2: layer 0 head 0 is named twice"));
  for (const char* bad : {"-1 0 streaming", "0 streaming", "0 0 streaming 1", "x 0 retrieval", "99999 0 retrieval"})
    EXPECT_THAT(error_of(bad), testing::HasSubstr("line 1: found")) << bad;
  const auto missing = parse_policy("duo:roles=%2Fnowhere%2Froles", {});
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.error().message, testing::HasSubstr("duo:roles=/nowhere/roles: no such file can be read"));
}

}  // namespace
}  // namespace kedge::eviction
