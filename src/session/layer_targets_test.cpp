#include "session/layer_targets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace kedge::session {
namespace {

using testing::ElementsAre;

std::vector<int64_t> blocks_of(const std::vector<EvictionTarget>& targets) {
  std::vector<int64_t> out;
  for (const EvictionTarget& target : targets)
    out.push_back(target.blocks);
  return out;
}

std::vector<int64_t> rows_of(const std::vector<EvictionTarget>& targets) {
  std::vector<int64_t> out;
  for (const EvictionTarget& target : targets)
    out.push_back(target.rows_exact);
  return out;
}

TEST(WeighLayers, BlocksFollowWeightsBeyondWhatIsFixed) {
  // 2 heads, 5 fixed rows: 2 blocks a head are sure; the other 3 * 20 - 3 * 4 = 48 blocks go 3 : 2 : 1.
  const LayerWeights layers{.weight = {3, 2, 1}, .n_kv_heads = 2, .fixed_rows = 5};
  EXPECT_THAT(blocks_of(weigh_layers({.blocks = 20}, layers)), ElementsAre(28, 20, 12));
  // Growth of 33 rows is 2 whole blocks a head, for every layer alike: 24 - 4 = 20 is what is divided.
  EXPECT_THAT(blocks_of(weigh_layers({.blocks = 24, .growth = 33}, layers)), ElementsAre(32, 24, 16));
  EXPECT_EQ(weigh_layers({.blocks = 24, .growth = 33}, layers)[2].growth, 33);
}

TEST(WeighLayers, ALayerHasNoMoreThanThePrompt) {
  // 40 tokens: 3 blocks a head and one that is begun, 8 of 2 heads; the others take the rest.
  const LayerWeights layers{.weight = {100, 2, 1}, .n_kv_heads = 2, .fixed_rows = 5};
  EXPECT_THAT(blocks_of(weigh_layers({.blocks = 6, .most_tokens = 40}, layers)), ElementsAre(8, 5, 5));
  const auto exact = weigh_layers({.blocks = 9, .rows_exact = 50, .most_tokens = 40}, layers);
  EXPECT_THAT(rows_of(exact), ElementsAre(80, 43, 27));
  EXPECT_THAT(rows_of(weigh_layers({.blocks = 9, .rows_exact = 80, .most_tokens = 40}, layers)),
              ElementsAre(80, 80, 80));
}

TEST(WeighLayers, SumsExactlyForEveryTotalAndNeverTakesBack) {
  for (const int n_layers : {1, 2, 7, 30}) {
    LayerWeights layers{.n_kv_heads = 3, .fixed_rows = 9};
    for (int l = 0; l < n_layers; ++l)
      layers.weight.push_back(1.95 - 1.9 * l / std::max(n_layers - 1, 1));
    std::vector<int64_t> before(static_cast<size_t>(n_layers), 0);
    std::vector<int64_t> rows_before = before;
    for (int64_t mean = 1; mean < 300; mean += 1) {
      const auto blocks = blocks_of(weigh_layers({.blocks = mean}, layers));
      EXPECT_EQ(std::accumulate(blocks.begin(), blocks.end(), int64_t{0}), mean * n_layers);
      const auto rows = rows_of(weigh_layers({.blocks = mean, .rows_exact = mean, .most_tokens = 1000}, layers));
      EXPECT_EQ(std::accumulate(rows.begin(), rows.end(), int64_t{0}), mean * n_layers);
      for (size_t l = 0; l < blocks.size(); ++l) {
        EXPECT_GE(blocks[l], std::min<int64_t>(mean, 3 * 2)) << mean;
        EXPECT_GE(blocks[l], before[l]) << mean;
        EXPECT_GE(rows[l], rows_before[l]) << mean;
      }
      before = blocks;
      rows_before = rows;
    }
  }
}

TEST(WeighLayers, BudgetsTooSmallForWeightsAreEqual) {
  const LayerWeights layers{.weight = {9, 1}, .n_kv_heads = 2, .fixed_rows = 100};
  EXPECT_THAT(blocks_of(weigh_layers({.blocks = 6}, layers)), ElementsAre(6, 6));
  EXPECT_THAT(blocks_of(weigh_layers({.blocks = 6, .growth = 200}, layers)), ElementsAre(6, 6));
}

}  // namespace
}  // namespace kedge::session
