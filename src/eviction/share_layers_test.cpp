// Layers that join one after the other end where one division over all of them ends.
#include "eviction/share_layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>

#include "eviction/synthetic_heads.h"

namespace kedge::eviction {
namespace {

using testing::Each;
using testing::ElementsAre;

// Rows of a head without keys and values: positions and scores.
struct Rows {
  std::vector<int32_t> positions;
  std::vector<float> score;

  void keep(const std::vector<int32_t>& rows) {
    Rows kept;
    for (const int32_t row : rows) {
      kept.positions.push_back(positions[static_cast<size_t>(row)]);
      kept.score.push_back(score[static_cast<size_t>(row)]);
    }
    *this = kept;
  }
};

struct Layer {
  std::vector<Rows> heads;
  std::vector<double> measured;
  double demand = 1;
};

struct Totals {
  int64_t rows = 0;
  int64_t blocks = 0;
  int32_t growth = 0;
};

// One division over `layers`, carried out.
void divide(const Policy& policy, const Totals& totals, std::span<Layer> layers, int n_layers) {
  std::vector<std::vector<int32_t>> padded;  // positions, whole blocks
  std::vector<std::vector<uint32_t>> ids;
  std::vector<SharedLayer> shared;
  LayerInput all{
      .n_sinks = 2, .n_recent = 3, .blocks_total = totals.blocks, .growth = totals.growth, .rows_total = totals.rows};
  for (const Layer& layer : layers) {
    SharedLayer& own = shared.emplace_back();
    own.layer = static_cast<int>(shared.size()) - 1;
    own.measured = layer.measured;
    own.demand = layer.demand;
    own.scored_tokens = 1 << 20;
    for (const Rows& head : layer.heads) {
      own.score.push_back(head.score);
      padded.push_back(head.positions);
      padded.back().resize((head.positions.size() + kBlockRows - 1) / kBlockRows * kBlockRows, -1);
      ids.emplace_back(padded.back().size() / kBlockRows);
      std::iota(ids.back().begin(), ids.back().end(), 0U);
    }
  }
  size_t at = 0;
  for (const Layer& layer : layers) {
    for (const Rows& head : layer.heads) {
      HeadInput& in = all.heads.emplace_back();
      in.n_layers = n_layers;
      in.rows.positions = padded[at].data();
      in.rows.block_ids = ids[at].data();
      in.rows.n_rows = static_cast<int32_t>(head.positions.size());
      ++at;
    }
  }
  SerialExecutor executor;
  const auto keep = divide_layers(*policy.allocator, all, shared, executor).keep;
  at = 0;
  for (Layer& layer : layers) {
    for (Rows& head : layer.heads)
      head.keep(keep[at++]);
  }
}

std::vector<Layer> random_layers(std::mt19937& random, bool has_ties) {
  std::vector<Layer> layers(2 + random() % 6);
  const size_t n_heads = 1 + random() % 3;
  const size_t n_rows = 30 + random() % 200;
  for (Layer& layer : layers) {
    layer.demand = 0.5 + static_cast<double>(random() % 100) / 10;
    for (size_t h = 0; h < n_heads; ++h) {
      layer.measured.push_back(1 + static_cast<double>(random() % 90));
      Rows& rows = layer.heads.emplace_back();
      for (size_t i = 0; i < n_rows; ++i) {
        rows.positions.push_back(static_cast<int32_t>(i));
        rows.score.push_back(has_ties ? static_cast<float>(random() % 7) - 2
                                      : std::normal_distribution<float>(0.5F, 1.0F + static_cast<float>(h))(random));
      }
    }
  }
  return layers;
}

std::vector<std::vector<int32_t>> positions_of(std::span<const Layer> layers) {
  std::vector<std::vector<int32_t>> out;
  for (const Layer& layer : layers) {
    for (const Rows& head : layer.heads)
      out.push_back(head.positions);
  }
  return out;
}

// Layers join one by one; totals on the way are at least the last one.
std::vector<Layer> cascade(const Policy& policy, const std::vector<Layer>& layers, const Totals& last,
                           std::mt19937& random) {
  std::vector<Layer> held;
  for (size_t l = 0; l < layers.size(); ++l) {
    held.push_back(layers[l]);
    Totals totals = last;
    if (l + 1 < layers.size()) {
      totals.growth = 0;
      totals.rows += last.rows > 0 ? static_cast<int64_t>(random() % 40) : 0;
      totals.blocks += static_cast<int64_t>(random() % 3);
    }
    divide(policy, totals, held, static_cast<int>(layers.size()));
  }
  return held;
}

constexpr const char* kShared[] = {"random/pooled-all",  "random/pooled-all:norm=none", "random/error",
                                   "random/entropy",     "random/entropy:heads=pooled", "random/fastgen",
                                   "random/error-layers"};

TEST(Cascade, KeepsWhatOneDivisionOverAllLayersKeeps) {
  std::mt19937 random(5);
  for (const char* text : kShared) {
    const Policy policy = policy_of(text);
    for (int round = 0; round < 60; ++round) {
      const bool has_ties = round % 3 == 0;
      const std::vector<Layer> layers = random_layers(random, has_ties);
      const auto n_heads = static_cast<int64_t>(layers.size() * layers[0].heads.size());
      const Totals last{.rows =
                            n_heads * (5 + static_cast<int64_t>(random() % 40)) + static_cast<int64_t>(random() % 7)};
      std::vector<Layer> at_once = layers;
      divide(policy, last, at_once, static_cast<int>(layers.size()));
      const std::vector<Layer> joined = cascade(policy, layers, last, random);
      if (!has_ties) {  // equal scores of different heads go by place, and places change
        ASSERT_EQ(positions_of(joined), positions_of(at_once)) << text << " round " << round;
      }
      int64_t rows = 0;
      for (const auto& head : positions_of(joined))
        rows += static_cast<int64_t>(head.size());
      EXPECT_EQ(rows,
                std::min<int64_t>(last.rows, n_heads * static_cast<int64_t>(layers[0].heads[0].positions.size())));
    }
  }
}

TEST(Cascade, OfWholeBlocksIsWithinABlockPerHeadOfOneDivision) {
  std::mt19937 random(6);
  for (const char* text : kShared) {
    const Policy policy = policy_of(text);
    for (int round = 0; round < 60; ++round) {
      const std::vector<Layer> layers = random_layers(random, false);
      const auto n_heads = static_cast<int64_t>(layers.size() * layers[0].heads.size());
      const Totals last{.blocks = n_heads * (2 + static_cast<int64_t>(random() % 5)),
                        .growth = static_cast<int32_t>(random() % 10)};
      std::vector<Layer> at_once = layers;
      divide(policy, last, at_once, static_cast<int>(layers.size()));
      const std::vector<Layer> joined = cascade(policy, layers, last, random);
      const auto a = positions_of(joined);
      const auto b = positions_of(at_once);
      int64_t blocks = 0;
      for (size_t h = 0; h < a.size(); ++h) {
        blocks += (static_cast<int64_t>(a[h].size()) + last.growth + kBlockRows - 1) / kBlockRows;
        EXPECT_LE(std::abs(static_cast<int64_t>(a[h].size()) - static_cast<int64_t>(b[h].size())), kBlockRows)
            << text << " round " << round << " head " << h;
      }
      EXPECT_LE(blocks, last.blocks) << text;
    }
  }
}

TEST(DivideLayers, RowsWithoutAScoreStay) {
  SyntheticHead head({.n_rows = 40, .gap = 0});
  LayerInput all{.heads = {head.input(), head.input()}, .rows_total = 40};
  std::vector<float> score(40, 0.0F);
  std::fill(score.begin(), score.begin() + 20, 1.0F);
  std::vector<SharedLayer> layers = {{.layer = 0, .score = {score}, .measured = {1}, .scored_tokens = 30},
                                     {.layer = 1, .score = {score}, .measured = {1}, .scored_tokens = 40}};
  SerialExecutor executor;
  const auto keep = divide_layers(*policy_of("random/pooled-all").allocator, all, layers, executor).keep;
  ASSERT_EQ(keep[0].size() + keep[1].size(), 40U);
  for (int32_t row = 30; row < 40; ++row)
    EXPECT_TRUE(std::ranges::binary_search(keep[0], row)) << row;
  EXPECT_THAT(keep[1], Each(testing::Lt(20)));
}

// Chunks of 4: every row says what its chunk said, so that rows go together when they are divided a second time.
TEST(ScoreLayer, SpreadsChunksWhereLayersShare) {
  SyntheticHead head({.n_rows = 60, .gap = 0});
  const LayerInput in{.heads = {head.input()}, .n_sinks = 2, .n_recent = 5, .rows_total = 30};
  SerialExecutor executor;
  const ScoredLayer alone = score_layer(policy_of("andpro:chunk=4/pooled"), in, executor);
  const ScoredLayer shared = score_layer(policy_of("andpro:chunk=4/pooled-all"), in, executor);
  EXPECT_EQ(alone.chunk, 4);
  EXPECT_EQ(shared.chunk, 1);
  for (size_t begin = 4; begin < 52; begin += 4) {
    const double sum = std::accumulate(alone.score[0].begin() + static_cast<long>(begin),
                                       alone.score[0].begin() + static_cast<long>(begin) + 4, 0.0);
    for (size_t i = begin; i < begin + 4; ++i)
      EXPECT_NEAR(shared.score[0][i], sum, 1e-5 * std::abs(sum));
  }
  EXPECT_EQ(shared.score[0][0], alone.score[0][0]) << "a sink belongs to no chunk";
  EXPECT_NEAR(shared.score[0][2], double{alone.score[0][2]} + alone.score[0][3], 1e-5);
  EXPECT_GT(shared.demand, 0);
  EXPECT_EQ(alone.demand, 1);
}

}  // namespace
}  // namespace kedge::eviction
