// Features of the ageing stage against their definitions, in double, from weights that were computed with none of our
// kernels; and the policies that ask it.
#include "eviction/ageing.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/executor.h"
#include "eviction/options.h"
#include "eviction/select.h"
#include "eviction/synthetic_heads.h"

namespace kedge::eviction {
namespace {

using gate::Feature;

const std::vector<Feature> kAll = {Feature::logit,       Feature::attention, Feature::window_max, Feature::window_mean,
                                   Feature::last_access, Feature::age,       Feature::key_norm,   Feature::value_norm,
                                   Feature::past,        Feature::echo,      Feature::anchor};

double norm_of(const std::vector<float>& rows, int row, int dim) {
  double square = 0;
  for (int j = 0; j < dim; ++j)
    square += std::pow(double{rows[static_cast<size_t>(row) * dim + j]}, 2);
  return std::sqrt(square);
}

// sum over queries and heads of the weight, the largest of 11 rows around, times v . y; over the sum of ||y||^2
double plain_anchor(const SyntheticHead& head, const HeadInput& in, int i, int first) {
  const int d = in.rows.head_dim;
  double score = 0;
  double square = 0;
  for (int t = first; t < in.n_window; ++t) {
    for (int g = 0; g < in.group; ++g) {
      double most = 0;
      for (int j = std::max(i - 5, 0); j <= std::min(i + 5, in.rows.n_rows - 1); ++j)
        most = std::max(most, head.weight(t, g, j));
      double along = 0;
      for (int j = 0; j < d; ++j) {
        const double y = double{in.y[(t * in.group + g) * d + j]};
        along += double{head.v[static_cast<size_t>(i * d + j)]} * y;
        square += y * y;
      }
      score += most * along;
    }
  }
  return std::max(score, 0.0) / square;
}

// One feature of one row, of the last `window` queries.
double plain_feature(const SyntheticHead& head, const HeadInput& in, Feature feature, int i, int window) {
  const int first = std::max(in.n_window - window, 0);
  const int position = head.row_positions[i];
  double most = 0;
  double sum = 0;
  int n_seen = 0;
  int last = -1;
  for (int t = first; t < in.n_window; ++t) {
    int n_rows = 0;  // that the query sees
    for (const int other : head.row_positions)
      n_rows += other <= in.query_positions[t] ? 1 : 0;
    for (int g = 0; g < in.group; ++g) {
      const double weight = head.weight(t, g, i);
      most = std::max(most, weight);
      sum += weight;
      n_seen += position <= in.query_positions[t] ? 1 : 0;
      if (weight > 1.0 / n_rows)
        last = in.query_positions[t];
    }
  }
  switch (feature) {
    case Feature::logit:
      return in.gate[i];
    case Feature::attention:
      return std::log(std::max(double{in.attention_sum[i]} / (in.n_tokens - position), 1e-8));
    case Feature::window_max:
      return std::log(std::max(most, 1e-8));
    case Feature::window_mean:
      return std::log(std::max(n_seen > 0 ? sum / n_seen : 0.0, 1e-8));
    case Feature::last_access:
      return std::log(1.0 + (last < 0 ? window : in.n_tokens - 1 - last));
    case Feature::age:
      return std::log(static_cast<double>(in.n_tokens - position));
    case Feature::key_norm:
      return std::log(norm_of(head.k, i, in.rows.head_dim));
    case Feature::value_norm:
      return std::log(norm_of(head.v, i, in.rows.head_dim));
    case Feature::past:
      return std::log(std::max(double{in.past[i]}, 1e-8));
    case Feature::echo:
      return std::log(std::max(double{in.echo[i]}, 1e-8));
    case Feature::anchor:
      return std::log(std::max(plain_anchor(head, in, i, first), 1e-8));
  }
  return 0;
}

TEST(AgeingFeatures, AreWhatTheirNamesSay) {
  int n_accessed = 0;
  for (const SyntheticSpec& spec : {SyntheticSpec{.n_rows = 203, .tail = 40, .seed = 3},
                                    SyntheticSpec{.n_rows = 90, .group = 1, .tail = 5, .seed = 4},
                                    SyntheticSpec{.n_rows = 120, .n_window = 8, .type = RowType::bf16, .seed = 5}}) {
    const SyntheticHead head(spec);
    const HeadInput in = head.input();
    for (const int window : {4, 16, 64}) {
      const std::vector<float> found = ageing_features(in, {.features = kAll, .width = 0, .window = window});
      ASSERT_EQ(found.size(), static_cast<size_t>(spec.n_rows) * kAll.size());
      for (int i = 0; i < spec.n_rows; ++i) {
        for (size_t j = 0; j < kAll.size(); ++j) {
          const double expected = plain_feature(head, in, kAll[j], i, window);
          const double value = found[static_cast<size_t>(i) * kAll.size() + j];
          if (kAll[j] == Feature::anchor)  // a difference: what is near zero has a logarithm of no meaning
            EXPECT_NEAR(std::exp(value), std::exp(expected), 1e-5 + 1e-3 * std::exp(expected)) << i;
          else
            EXPECT_NEAR(value, expected, 2e-3)
                << gate::feature_name(kAll[j]) << " of row " << i << ", window " << window;
          n_accessed += kAll[j] == Feature::last_access && expected < std::log(1.0 + window) ? 1 : 0;
        }
      }
    }
  }
  EXPECT_GT(n_accessed, 300) << "some rows are looked at";
}

TEST(AgeingFeatures, ComeInTheOrderThatIsAskedForAndAloneAsWell) {
  const SyntheticHead head({.n_rows = 70, .tail = 20, .seed = 6});
  const HeadInput in = head.input();
  const std::vector<float> all = ageing_features(in, {.features = kAll, .width = 0, .window = 32});
  for (size_t j = 0; j < kAll.size(); ++j) {
    const std::vector<float> one = ageing_features(in, {.features = {kAll[j]}, .width = 0, .window = 32});
    ASSERT_EQ(one.size(), 70U);
    for (size_t i = 0; i < one.size(); ++i)
      EXPECT_EQ(one[i], all[i * kAll.size() + j]) << gate::feature_name(kAll[j]);
  }
}

TEST(AgeingFeatures, AreFiniteWhereNothingWasSeen) {
  const SyntheticHead head({.n_rows = 40, .n_window = 4, .seed = 7});
  HeadInput in = head.input();
  in.n_window = 0;
  const std::vector<float> zeros(40, 0.0F);
  in.attention_sum = in.past = in.echo = zeros;
  for (const float one : ageing_features(in, {.features = kAll, .width = 0, .window = 32}))
    EXPECT_TRUE(std::isfinite(one));
}

TEST(AgeingNeeds, FollowTheFeatures) {
  const auto needs = [](std::vector<Feature> features) {
    return ageing_needs({.features = std::move(features), .width = 0, .window = 24});
  };
  EXPECT_EQ(needs({Feature::window_max}).window, 24);
  EXPECT_EQ(needs({Feature::last_access}).window, 24);
  EXPECT_EQ(needs({Feature::age, Feature::key_norm}).window, 0);
  EXPECT_TRUE(needs({Feature::key_norm}).values);
  EXPECT_FALSE(needs({Feature::age}).values);
  EXPECT_TRUE(needs({Feature::attention}).attention_sum);
  EXPECT_FALSE(needs({Feature::window_mean, Feature::age}).attention_sum)
      << "no bytes of the budget for what is not read";
  EXPECT_TRUE(needs({Feature::logit}).gate);
  EXPECT_FALSE(needs({Feature::attention}).gate);
  EXPECT_TRUE(needs({Feature::age}).ageing);
}

gate::Ageing random_ageing(int n_layers, int n_heads) {
  std::mt19937 random(9);
  std::normal_distribution<float> normal(0, 0.4F);
  const auto draw = [&](size_t n) {
    std::vector<float> out(n);
    for (float& one : out)
      one = normal(random);
    return out;
  };
  gate::Ageing ageing{.info = {.features = kAll, .width = 6, .window = 16}, .layers = {}};
  const auto heads = static_cast<size_t>(n_heads);
  for (int layer = 0; layer < n_layers; ++layer)
    ageing.layers.push_back({draw(heads * 6 * kAll.size()), draw(heads * 6), draw(heads * 6), draw(heads)});
  return ageing;
}

// The scorer's probability is the network over the plain features.
TEST(AgeingGate, ScoresAreTheNetworkOverTheFeatures) {
  const gate::Ageing ageing = random_ageing(6, 2);
  const Policy policy = std::move(parse_policy("gate", {.gate = ageing_needs(ageing.info)})).value();
  EXPECT_EQ(policy.scorer->needs().window, 16);
  EXPECT_TRUE(policy.scorer->needs().ageing);
  EXPECT_TRUE(policy.scorer->needs_whole_window());
  const SyntheticHead head({.n_rows = 150, .tail = 30, .seed = 11, .head = 1});
  HeadInput in = head.input();
  in.ageing = &ageing;
  std::vector<float> score(150);
  policy.scorer->score(in, score);
  for (int i = 0; i < 150; ++i) {
    std::vector<float> f;
    for (const Feature feature : kAll)
      f.push_back(static_cast<float>(plain_feature(head, in, feature, i, 16)));
    const float logit = gate::ageing_logits(ageing, {.layer = in.layer, .head = 1}, f)[0];
    EXPECT_NEAR(score[i], 1 / (1 + std::exp(-logit)), 2e-3) << i;
  }
  const std::vector<ScorePart> parts = policy.scorer->explain(in, score);
  ASSERT_EQ(parts.size(), kAll.size());
  EXPECT_EQ(parts[5].name, "age");
  EXPECT_NEAR(parts[5].value[3], plain_feature(head, in, Feature::age, 3, 16), 1e-5);
}

// A base that sees one query is scored from one query, whatever the gate looks at beside it.
TEST(AgeingGate, HybridKeepsTheWindowOfItsBase) {
  const gate::Ageing ageing = random_ageing(6, 1);
  const Needs asking = ageing_needs(ageing.info);
  const Policy hybrid =
      std::move(parse_policy("hybrid:base=tova,weight=0,recent=0,sinks=0/uniform", {.gate = asking})).value();
  const Policy tova = policy_of("tova:heads=group,recent=0,sinks=0/uniform");
  const SyntheticHead head({.n_rows = 150, .tail = 40, .seed = 12});
  LayerInput in{.heads = {head.input()}, .rows_total = 60};
  in.heads[0].ageing = &ageing;
  SerialExecutor executor;
  EXPECT_EQ(decide_layer(hybrid, in, executor).keep, decide_layer(tova, in, executor).keep);
  EXPECT_EQ(hybrid.scorer->needs().window, 16);
}

TEST(AgeingGate, OneThatSaysNothingOfNewRowsTakesNoNoteOfThem) {
  const Needs asking = ageing_needs({.features = {Feature::age}, .width = 0, .window = 16});
  const Policy policy = std::move(parse_policy("gate/uniform", {.gate = asking})).value();
  EXPECT_FALSE(policy.needs().gate);
  EXPECT_EQ(policy.needs().window, 0);
  EXPECT_TRUE(policy_of("gate/uniform").needs().gate) << "the usual gate";
}

}  // namespace
}  // namespace kedge::eviction
