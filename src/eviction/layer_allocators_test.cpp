// Allocators that look at more than one layer, or at more than scores: hand-made values, and properties of all that the
// registry has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "eviction/compete.h"
#include "eviction/exact_term.h"
#include "eviction/example.h"
#include "eviction/select.h"
#include "eviction/synthetic_heads.h"

namespace kedge::eviction {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::FloatNear;

struct Heads {
  std::vector<std::vector<float>> score;
  std::vector<std::vector<uint8_t>> flags;
  std::vector<double> measured;
  double demand = 1;

  LayerScores view(int layer = 0, int n_layers = 1) const {
    LayerScores scores{.score = {}, .is_protected = {}, .layer = layer, .n_layers = n_layers, .measured = measured};
    scores.demand = demand;
    for (size_t h = 0; h < score.size(); ++h) {
      scores.score.emplace_back(score[h]);
      scores.is_protected.emplace_back(flags[h]);
    }
    return scores;
  }
};

Heads one_head(std::vector<float> score) {
  const size_t n = score.size();
  return {.score = {std::move(score)}, .flags = {std::vector<uint8_t>(n, 0)}, .measured = {1}};
}

std::vector<std::string> texts_of(std::initializer_list<Allocator::Layers> kinds) {
  std::vector<std::string> texts;
  for (const Method& method : allocators()) {
    const Policy policy = policy_of("random/" + method.info.name);
    if (std::find(kinds.begin(), kinds.end(), policy.allocator->layers()) != kinds.end())
      texts.push_back("random/" + method.info.name);
  }
  return texts;
}

// ---- pyramid, retention ----

TEST(Pyramid, FallsLinearlyAroundTheMean) {
  const Policy policy = policy_of("random/pyramid");
  EXPECT_NEAR(policy.allocator->layer_weight(0, 5), 1.95, 1e-12);
  EXPECT_NEAR(policy.allocator->layer_weight(2, 5), 1.0, 1e-12);
  EXPECT_NEAR(policy.allocator->layer_weight(4, 5), 0.05, 1e-12);
  EXPECT_NEAR(policy.allocator->layer_weight(1, 5), 1.475, 1e-12);
  EXPECT_NEAR(policy.allocator->layer_weight(0, 1), 1.0, 1e-12);
  EXPECT_NEAR(policy_of("random/pyramid:beta=1").allocator->layer_weight(0, 5), 1.0, 1e-12);
}

TEST(Pyramid, HeadsAreEqualUnlessPooled) {
  const Heads layer{.score = {{9, 8, 7, 6}, {1, 1, 1, 1}}, .flags = {{0, 0, 0, 0}, {0, 0, 0, 0}}};
  EXPECT_THAT(policy_of("random/pyramid").allocator->allocate(layer.view(), 4), ElementsAre(2, 2));
  EXPECT_THAT(policy_of("random/pyramid:heads=pooled").allocator->allocate(layer.view(), 4), ElementsAre(3, 1));
}

TEST(Retention, IsACurveWithNamedLayers) {
  const Policy line = policy_of("random/retention:start=3,end=1");
  EXPECT_NEAR(line.allocator->layer_weight(0, 5), 3, 1e-12);
  EXPECT_NEAR(line.allocator->layer_weight(1, 5), 2.5, 1e-12);
  EXPECT_NEAR(line.allocator->layer_weight(4, 5), 1, 1e-12);
  const Policy bent = policy_of("random/retention:start=3,end=1,power=2,layers=0-1:7+4:0.5");
  EXPECT_EQ(bent.allocator->layer_weight(0, 5), 7);
  EXPECT_EQ(bent.allocator->layer_weight(1, 5), 7);
  EXPECT_NEAR(bent.allocator->layer_weight(2, 5), 1.5, 1e-12);
  EXPECT_EQ(bent.allocator->layer_weight(4, 5), 0.5);
  EXPECT_EQ(line.allocator->layer_weight(0, 1), 3);
}

TEST(Retention, RefusesNamesItCannotRead) {
  for (const char* layers : {"x", "1", "1:", ":2", "2-1:3", "1-:3", "1:0", "1:-2", "1:nan", "1:2000", "0:1++1:2"}) {
    const auto policy = parse_policy(std::string("random/retention:layers=") + layers, {});
    ASSERT_FALSE(policy.ok()) << layers;
    EXPECT_EQ(policy.error().code, ErrorCode::usage);
    EXPECT_NE(policy.error().message.find("FIRST[-LAST]:WEIGHT"), std::string::npos) << policy.error().message;
  }
}

TEST(Weights, ArePositiveForEveryLayer) {
  for (const std::string& text : texts_of({Allocator::Layers::weighted})) {
    for (const int n_layers : {1, 2, 30, 126}) {
      for (int layer = 0; layer < n_layers; ++layer)
        EXPECT_GT(policy_of(text).allocator->layer_weight(layer, n_layers), 0) << text;
    }
  }
}

// ---- pooled-all ----

TEST(PooledAll, MeasuresTheSizeOfALayersScores) {
  Heads layer{.score = {{1, -3, 100}, {2, 6, NAN}}, .flags = {{0, 0, 1}, {0, 0, 0}}};
  EXPECT_NEAR(policy_of("random/pooled-all").allocator->demand(layer.view()), 3, 1e-12);
  EXPECT_NEAR(policy_of("random/pooled-all:norm=top").allocator->demand(layer.view()), 6, 1e-12);
  EXPECT_NEAR(policy_of("random/pooled-all:norm=none").allocator->demand(layer.view()), 1, 1e-12);
  layer.score = {{0, 0, 0}, {0, 0, 0}};
  EXPECT_EQ(policy_of("random/pooled-all").allocator->demand(layer.view()), 1);
}

TEST(PooledAll, LayersCompeteByNormalisedScores) {
  Heads a = one_head({40, 30, 20, 10});
  Heads b = one_head({8, 7, 3, 2});
  a.demand = 25;  // 1.6 1.2 0.8 0.4
  b.demand = 5;   // 1.6 1.4 0.6 0.4
  const std::vector<LayerScores> layers = {a.view(0, 2), b.view(1, 2)};
  const Policy policy = policy_of("random/pooled-all");
  EXPECT_THAT(policy.allocator->allocate_layers(layers, 2), ElementsAre(ElementsAre(1), ElementsAre(1)));
  EXPECT_THAT(policy.allocator->allocate_layers(layers, 3), ElementsAre(ElementsAre(1), ElementsAre(2)));
  EXPECT_THAT(policy.allocator->allocate_layers(layers, 5), ElementsAre(ElementsAre(3), ElementsAre(2)));
  const Policy raw = policy_of("random/pooled-all:floor=1");
  EXPECT_THAT(raw.allocator->allocate_layers(layers, 6), ElementsAre(ElementsAre(3), ElementsAre(3)));
}

// ---- error ----

// e of the six rows by the definition, in double: queries 0 and 1 with the weights of eviction/example.h.
std::vector<double> example_errors() {
  const double a[2][6] = {{7.389056, 1, 2.718282, 1, 2.718282, 0},
                          {7.389056, 2.718282, 2.718282, 1, 7.389056, 2.718282}};
  const double v[6][2] = {{1, 0}, {2, 1}, {-1, 1}, {4, 0}, {0, 2}, {1, -2}};
  std::vector<double> error(6, 0.0);
  double output = 0;
  for (const auto& row : a) {
    const double sum = std::accumulate(std::begin(row), std::end(row), 0.0);
    double y[2] = {0, 0};
    for (int i = 0; i < 6; ++i) {
      for (int j = 0; j < 2; ++j)
        y[j] += row[i] / sum * v[i][j];
    }
    output += y[0] * y[0] + y[1] * y[1];
    for (int i = 0; i < 6; ++i) {
      const double ratio = row[i] / (sum - row[i]);
      error[i] += ratio * ratio * (std::pow(v[i][0] - y[0], 2) + std::pow(v[i][1] - y[1], 2));
    }
  }
  for (double& one : error)
    one /= output;
  return error;
}

TEST(ErrorDriven, PoolsRisingErrorsInTheScorersOrder) {
  const ExampleHead head;
  const std::vector<double> e = example_errors();
  const Policy policy = policy_of("random/error:window=2");
  std::vector<float> score(6);
  const auto rewritten = [&](const std::vector<size_t>& order) {
    for (size_t r = 0; r < 6; ++r)
      score[order[r]] = 10.0F - static_cast<float>(r);
    policy.allocator->make_comparable(head.input(), score);
    std::vector<double> out;
    for (const size_t i : order)
      out.push_back(score[i]);
    return out;
  };
  std::vector<size_t> by_error = {0, 1, 2, 3, 4, 5};
  std::sort(by_error.begin(), by_error.end(), [&](size_t a, size_t b) { return e[a] > e[b]; });
  const auto falling = rewritten(by_error);
  for (size_t r = 0; r < 6; ++r)
    EXPECT_NEAR(falling[r], e[by_error[r]], 2e-3 * e[by_error[r]] + 1e-4);
  // The other way round nothing falls: one pool, all have the mean, and the scorer's order is still there.
  std::reverse(by_error.begin(), by_error.end());
  const auto pooled = rewritten(by_error);
  const double mean = std::accumulate(e.begin(), e.end(), 0.0) / 6;
  for (size_t r = 0; r < 6; ++r)
    EXPECT_NEAR(pooled[r], mean, 2e-3 * mean);
  EXPECT_TRUE(std::adjacent_find(pooled.begin(), pooled.end(), std::less_equal<>()) == pooled.end());
}

TEST(ErrorDriven, NoDivisionHasASmallerPredictedErrorAtWholePools) {
  EXPECT_TRUE(rc::check([] {
    // Two heads of up to five rows whose errors are given; their order is that of the rows.
    SyntheticSpec spec{.n_rows = *rc::gen::inRange(2, 7), .head_dim = 64, .group = 1, .n_window = 3, .gap = 0};
    spec.seed = *rc::gen::inRange<uint32_t>(1, 1000000);
    const SyntheticHead a(spec);
    spec.seed += 7;
    spec.n_rows = *rc::gen::inRange(2, 7);
    const SyntheticHead b(spec);
    const Policy by_order = policy_of("random/error:window=3");
    Heads layer;
    std::vector<std::vector<double>> error;
    for (const SyntheticHead* head : {&a, &b}) {
      std::vector<float> score(static_cast<size_t>(head->view.n_rows));
      for (size_t i = 0; i < score.size(); ++i)
        score[i] = -static_cast<float>(i);
      by_order.allocator->make_comparable(head->input(), score);
      double output = 0;
      std::vector<double> own(score.size(), 0.0);
      for (int t = 0; t < 3; ++t) {
        const float* y = head->y.data() + t * 64;
        output += std::inner_product(y, y + 64, y, 0.0);
        for (size_t i = 0; i < own.size(); ++i) {
          double distance = 0;
          for (size_t j = 0; j < 64; ++j)
            distance += std::pow(double{head->v[i * 64 + j]} - y[j], 2);
          const double weight = head->weight(t, 0, static_cast<int>(i));
          own[i] += std::pow(weight / std::max(1 - weight, 1e-6), 2) * distance;
        }
      }
      for (double& one : own)
        one /= output;
      error.push_back(own);
      layer.score.push_back(score);
      layer.flags.emplace_back(score.size(), 0);
    }
    const auto lost = [&](size_t keep_a, size_t keep_b) {
      return std::accumulate(error[0].begin() + static_cast<long>(keep_a), error[0].end(), 0.0) +
             std::accumulate(error[1].begin() + static_cast<long>(keep_b), error[1].end(), 0.0);
    };
    const size_t n_a = error[0].size();
    const size_t n_b = error[1].size();
    for (size_t total = 2; total <= n_a + n_b; ++total) {
      const auto rows = by_order.allocator->allocate(layer.view(), static_cast<int64_t>(total));
      double best = INFINITY;
      for (size_t k = 1; k < total && k <= n_a; ++k) {
        if (total - k <= n_b)
          best = std::min(best, lost(k, total - k));
      }
      // Where no pool is cut the division is the best; a cut pool is at most the pool's own error away.
      const bool is_cut = [&] {
        for (size_t h = 0; h < 2; ++h) {
          const auto k = static_cast<size_t>(rows[h]);
          if (k < layer.score[h].size() &&
              std::abs(layer.score[h][k - 1] - layer.score[h][k]) <= 1e-5F * std::abs(layer.score[h][k]))
            return true;
        }
        return rows[0] == 1 || rows[1] == 1;  // the row that every head is sure of
      }();
      if (!is_cut)
        RC_ASSERT(lost(static_cast<size_t>(rows[0]), static_cast<size_t>(rows[1])) <= best * 1.001 + 1e-6);
    }
  }));
}

// ---- entropy, fastgen, anchor ----

TEST(EntropyShare, IsThatOfTheWindowsAttention) {
  // Rows before the window (positions 4 and 5) are 0..3; weights over e^x of the logits, see eviction/example.h.
  const double a[2][4] = {{0.4984, 0.0674, 0.1833, 0.0674}, {0.3087, 0.1136, 0.1136, 0.0418}};
  double width = 0;
  double variance = 0;
  for (int i = 0; i < 4; ++i) {
    for (int t = 0; t < 2; ++t)
      width -= a[t][i] * std::log(a[t][i]) / 2;
    variance += std::pow(a[0][i] - a[1][i], 2) / 2;  // of two values, divided by n - 1
  }
  const ExampleHead head;
  EXPECT_THAT(policy_of("random/entropy:window=2,tau1=1,tau2=1").allocator->measure(head.input()),
              DoubleNear(width * variance, 2e-3 * width * variance));
  EXPECT_THAT(policy_of("random/entropy:window=2,tau1=2,tau2=1").allocator->measure(head.input()),
              DoubleNear(std::sqrt(width) * variance, 2e-3 * variance));
}

TEST(EntropyShare, LayersGetTheirShareAndHeadsTheSame) {
  Heads a{.score = {std::vector<float>(50, 1), std::vector<float>(50, 1)},
          .flags = {std::vector<uint8_t>(50, 0), std::vector<uint8_t>(50, 0)},
          .measured = {1, 5}};
  Heads b = a;
  b.measured = {1, 1};
  const Policy policy = policy_of("random/entropy");
  a.demand = policy.allocator->demand(a.view());
  b.demand = policy.allocator->demand(b.view());
  EXPECT_EQ(a.demand, 3);
  const std::vector<LayerScores> layers = {a.view(0, 2), b.view(1, 2)};
  EXPECT_THAT(policy.allocator->allocate_layers(layers, 40), ElementsAre(ElementsAre(15, 15), ElementsAre(5, 5)));
  EXPECT_THAT(policy_of("random/entropy:floor=1").allocator->allocate_layers(layers, 40),
              ElementsAre(ElementsAre(10, 10), ElementsAre(10, 10)));
  EXPECT_THAT(policy.allocator->allocate_layers(layers, 180), ElementsAre(ElementsAre(50, 50), ElementsAre(40, 40)));
}

TEST(ErrorLayers, MeasureIsTheSummedErrorOfUnprotectedRows) {
  const ExampleHead head;
  HeadInput in = head.input();
  const std::vector<int32_t> rows = {0, 1, 2, 3, 4, 5};
  std::vector<float> term(rows.size());
  exact_terms(in, rows, term);
  const size_t n = static_cast<size_t>(in.n_window) * static_cast<size_t>(in.group * in.rows.head_dim);
  const double output = std::inner_product(in.y, in.y + n, in.y, 0.0);
  const Policy policy = policy_of("random/error-layers");
  EXPECT_NEAR(policy.allocator->measure(in), std::accumulate(term.begin(), term.end(), 0.0) / output, 1e-6);
  const std::vector<uint8_t> flags = {1, 0, 0, 0, 0, 1};
  in.is_protected = flags;
  EXPECT_NEAR(policy.allocator->measure(in), (term[1] + term[2] + term[3] + term[4]) / output, 1e-6);
}

TEST(ErrorLayers, LayersShareByErrorAndHeadsCompete) {
  Heads a{.score = {std::vector<float>(50, 1), std::vector<float>(50, 2)},
          .flags = {std::vector<uint8_t>(50, 0), std::vector<uint8_t>(50, 0)},
          .measured = {1, 2}};
  Heads b = a;
  b.measured = {0.5, 0.5};
  const auto rows = [&](const std::string& options, int64_t total) {
    const Policy policy = policy_of("random/error-layers" + options);
    a.demand = policy.allocator->demand(a.view());
    b.demand = policy.allocator->demand(b.view());
    return policy.allocator->allocate_layers(std::vector<LayerScores>{a.view(0, 2), b.view(1, 2)}, total);
  };
  // A head is sure of one row, a layer of two: of 2 + 40 each 22 beyond; 3 to 1 without a floor.
  EXPECT_THAT(rows(":floor=0", 44), ElementsAre(ElementsAre(1, 31), ElementsAre(1, 11)));
  EXPECT_THAT(rows(":floor=0.5", 44), ElementsAre(ElementsAre(1, 26), ElementsAre(1, 16)));
  EXPECT_THAT(rows(":floor=1", 44), ElementsAre(ElementsAre(1, 21), ElementsAre(1, 21)));
  EXPECT_THAT(rows(":floor=0,power=2", 44), ElementsAre(ElementsAre(1, 37), ElementsAre(1, 5)));
}

TEST(FastGenProfile, IsTheSmallestSetThatHoldsTheAttention) {
  // Sums of the two queries' weights: .807 .181 .297 .109 .492 .114; row 0 is special, row 1 punctuation.
  const ExampleHead head;
  const auto rows = [&](const char* options) {
    return policy_of(std::string("random/fastgen:window=2,") + options).allocator->measure(head.input());
  };
  EXPECT_EQ(rows("recover=0.4"), 1);                              // row 0: .404
  EXPECT_EQ(rows("recover=0.45"), 2);                             // and row 1: .494
  EXPECT_EQ(rows("recover=0.6,frequent=0.333"), 3);               // the two with most: rows 0 and 4: .740
  EXPECT_EQ(rows("recover=0.78,frequent=0.333,local=0.333"), 4);  // rows 4 and 5: .797
  EXPECT_EQ(rows("recover=0.95,frequent=0.333,local=0.333"), 6);  // all
}

TEST(AnchorShare, FollowsTheAgreementOfOutputs) {
  const ExampleHead head;
  const float* y = head.input().y;
  const int d = ExampleHead::kHeadDim;
  const double product = std::inner_product(y, y + d, y + d, 0.0);
  const double expected =
      product / std::sqrt(std::inner_product(y, y + d, y, 0.0) * std::inner_product(y + d, y + 2 * d, y + d, 0.0));
  const Policy policy = policy_of("random/anchor:least=0.5,power=2");
  EXPECT_NEAR(policy.allocator->measure(head.input()), expected, 1e-6);
  // Weights .5 + .5 c^2: 1 and .5
  const Heads layer{.score = {std::vector<float>(20, 1), std::vector<float>(20, 1)},
                    .flags = {std::vector<uint8_t>(20, 0), std::vector<uint8_t>(20, 0)},
                    .measured = {1, -0.3}};
  EXPECT_THAT(policy.allocator->allocate(layer.view(), 12), ElementsAre(8, 4));
}

// ---- properties of everything that shares one total ----

std::vector<Heads> random_layers(int n_layers, int n_heads) {
  static constexpr float kSpecial[] = {0, -1, NAN, INFINITY, -INFINITY, 1e30F};
  std::vector<Heads> layers;
  const bool is_odd = *rc::gen::inRange(0, 4) == 0;
  for (int l = 0; l < n_layers; ++l) {
    Heads& layer = layers.emplace_back();
    for (int h = 0; h < n_heads; ++h) {
      const auto n = *rc::gen::inRange<size_t>(1, 60);
      auto& score = layer.score.emplace_back(n);
      auto& flags = layer.flags.emplace_back(n, 0);
      const auto words = *rc::gen::container<std::vector<uint32_t>>(n, rc::gen::arbitrary<uint32_t>());
      for (size_t i = 0; i < n; ++i) {
        score[i] = is_odd ? kSpecial[words[i] % 6] : static_cast<float>(words[i] % 1000) - 300;
        flags[i] = i == 0 || i + words[0] % 5 >= n ? 1 : 0;
      }
      layer.measured.push_back(*rc::gen::inRange(-1, 50));
    }
    layer.demand = *rc::gen::inRange(1, 50) / 10.0;
  }
  return layers;
}

std::vector<LayerScores> views(const std::vector<Heads>& layers) {
  std::vector<LayerScores> out;
  for (const Heads& layer : layers)
    out.push_back(layer.view(static_cast<int>(out.size()), static_cast<int>(layers.size())));
  return out;
}

TEST(SharedAllocators, SumExactlyKeepMinimaNestAndRepeat) {
  for (const std::string& text : texts_of({Allocator::Layers::shared})) {
    const Policy policy = policy_of(text);
    EXPECT_TRUE(rc::check(text, [&] {
      const std::vector<Heads> layers = random_layers(*rc::gen::inRange(1, 6), *rc::gen::inRange(1, 4));
      int64_t least = 0;
      int64_t most = 0;
      for (const Heads& layer : layers) {
        for (size_t h = 0; h < layer.score.size(); ++h) {
          least += minimum_rows(layer.flags[h], layer.score[h].size());
          most += static_cast<int64_t>(layer.score[h].size());
        }
      }
      const int64_t total = least + *rc::gen::inRange<int64_t>(0, most - least + 10);
      const auto rows = policy.allocator->allocate_layers(views(layers), total);
      const auto again = policy.allocator->allocate_layers(views(layers), total);
      const auto more = policy.allocator->allocate_layers(views(layers), total + 5);
      RC_ASSERT(rows == again);
      int64_t sum = 0;
      for (size_t l = 0; l < layers.size(); ++l) {
        for (size_t h = 0; h < layers[l].score.size(); ++h) {
          sum += rows[l][h];
          RC_ASSERT(rows[l][h] >= minimum_rows(layers[l].flags[h], layers[l].score[h].size()));
          RC_ASSERT(rows[l][h] <= static_cast<int32_t>(layers[l].score[h].size()));
          RC_ASSERT(more[l][h] >= rows[l][h]);
        }
      }
      RC_ASSERT(sum == std::min(total, most));
      // Less than the minima: nothing breaks, every head keeps a row.
      const int64_t few = *rc::gen::inRange<int64_t>(0, least + 1);
      int64_t kept = 0;
      for (const auto& layer : policy.allocator->allocate_layers(views(layers), few)) {
        for (const int32_t r : layer) {
          RC_ASSERT(r >= 1);
          kept += r;
        }
      }
      RC_ASSERT(kept <= std::max<int64_t>(few, static_cast<int64_t>(layers.size() * layers[0].score.size())));
    })) << text;
  }
}

// Distinct scores: ties go by place.
TEST(SharedAllocators, PermutingHeadsPermutesRows) {
  for (const std::string& text : texts_of({Allocator::Layers::shared})) {
    const Policy policy = policy_of(text);
    EXPECT_TRUE(rc::check(text, [&] {
      const int n_heads = 3;
      std::vector<Heads> layers(static_cast<size_t>(*rc::gen::inRange(1, 4)));
      int next = 0;
      std::vector<int> distinct(layers.size() * n_heads * 40);
      std::iota(distinct.begin(), distinct.end(), -100);
      const auto seed = *rc::gen::arbitrary<uint32_t>();
      std::shuffle(distinct.begin(), distinct.end(), std::mt19937(seed));
      for (Heads& layer : layers) {
        for (int h = 0; h < n_heads; ++h) {
          auto& score = layer.score.emplace_back();
          for (int i = 0; i < 40; ++i)
            score.push_back(static_cast<float>(distinct[static_cast<size_t>(next++)]));
          layer.flags.emplace_back(40, 0);
          layer.measured.push_back(101 + distinct[static_cast<size_t>(next - 1)] + next * 1e-3);
        }
      }
      std::vector<Heads> permuted = layers;
      for (Heads& layer : permuted) {
        std::rotate(layer.score.begin(), layer.score.begin() + 1, layer.score.end());
        std::rotate(layer.measured.begin(), layer.measured.begin() + 1, layer.measured.end());
      }
      const int64_t total = static_cast<int64_t>(layers.size()) * n_heads * *rc::gen::inRange(1, 40);
      auto rows = policy.allocator->allocate_layers(views(layers), total);
      for (auto& layer : rows)
        std::rotate(layer.begin(), layer.begin() + 1, layer.end());
      if (text != "random/entropy")  // heads of a layer are equal: the rest goes by place
        RC_ASSERT(policy.allocator->allocate_layers(views(permuted), total) == rows);
    })) << text;
  }
}

// What an allocator measures is a number, whatever the head looks like.
TEST(Allocators, MeasureFiniteNumbersInAnyState) {
  for (const Method& method : allocators()) {
    const Policy policy = policy_of("random/" + method.info.name);
    for (const int n_rows : {1, 2, 17, 200}) {
      for (const int n_window : {0, 1, 2, 32}) {
        SyntheticHead head({.n_rows = n_rows, .n_window = std::max(n_window, 1), .gap = 0.2});
        HeadInput in = head.input();
        in.n_window = n_window;
        const std::vector<uint8_t> flags(static_cast<size_t>(n_rows), 0);
        in.is_protected = flags;
        EXPECT_TRUE(std::isfinite(policy.allocator->measure(in))) << method.info.name;
        std::vector<float> score(static_cast<size_t>(n_rows));
        for (size_t i = 0; i < score.size(); ++i)
          score[i] = static_cast<float>(i * 7 % 5);
        const std::vector<float> before = score;
        policy.allocator->make_comparable(in, score);
        for (size_t i = 0; i < score.size(); ++i) {
          ASSERT_TRUE(std::isfinite(score[i])) << method.info.name;
          for (size_t j = 0; j < i; ++j)
            ASSERT_FALSE(before[i] > before[j] ? score[i] < score[j] : before[i] < before[j] && score[i] > score[j])
                << method.info.name << " changed the order of rows " << j << " and " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace kedge::eviction
