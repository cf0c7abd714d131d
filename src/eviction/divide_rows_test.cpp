#include "eviction/divide_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <numeric>

namespace kedge::eviction {
namespace {

using testing::ElementsAre;

std::vector<int32_t> divided(std::vector<Part> parts, int64_t total) { return divide_by_weight(parts, total); }

TEST(DivideByWeight, RoundsToTheNearestAndSumsExactly) {
  EXPECT_THAT(divided({{3, 0, 100}, {1, 0, 100}}, 8), ElementsAre(6, 2));
  EXPECT_THAT(divided({{3, 0, 100}, {1, 0, 100}}, 1), ElementsAre(1, 0));
  // 2.5 and 7.5: the step of the larger weight comes first (2.5 / 1 = 7.5 / 3: together, so the lower index).
  EXPECT_THAT(divided({{1, 0, 100}, {3, 0, 100}}, 10), ElementsAre(3, 7));
  EXPECT_THAT(divided({{1, 0, 100}, {1, 0, 100}, {1, 0, 100}}, 8), ElementsAre(3, 3, 2));
}

TEST(DivideByWeight, StaysWithinItsBounds) {
  EXPECT_THAT(divided({{9, 0, 4}, {1, 0, 100}, {1, 0, 100}}, 20), ElementsAre(4, 8, 8));
  EXPECT_THAT(divided({{1, 5, 100}, {9, 0, 100}}, 12), ElementsAre(5, 7));
  EXPECT_THAT(divided({{1, 5, 9}, {9, 1, 3}}, 50), ElementsAre(9, 3));
  EXPECT_THAT(divided({{1, 5, 9}, {9, 1, 3}}, 4), ElementsAre(3, 1)) << "the largest minimum is lowered";
  EXPECT_THAT(divided({}, 4), ElementsAre());
}

TEST(DivideByWeight, WeightsThatSayNothing) {
  EXPECT_THAT(divided({{0, 0, 9}, {0, 0, 9}}, 8), ElementsAre(4, 4));
  EXPECT_THAT(divided({{-1, 0, 9}, {NAN, 0, 9}}, 8), ElementsAre(4, 4));
  EXPECT_THAT(divided({{0, 0, 9}, {2, 0, 5}}, 8), ElementsAre(3, 5)) << "what the others cannot take";
  EXPECT_THAT(divided({{INFINITY, 0, 9}, {1, 0, 9}}, 8), ElementsAre(0, 8));
  EXPECT_THAT(divided({{1e-300, 0, 9}, {1e300, 0, 9}}, 8), ElementsAre(0, 8));
}

TEST(DivideByWeight, IsExactBoundedAndNested) {
  EXPECT_TRUE(rc::check([] {
    const auto n = *rc::gen::inRange<size_t>(1, 8);
    std::vector<Part> parts;
    int64_t lo = 0;
    int64_t hi = 0;
    for (size_t i = 0; i < n; ++i) {
      Part part{.weight = *rc::gen::inRange(0, 1000) / 7.0, .lo = *rc::gen::inRange(0, 20)};
      part.hi = part.lo + *rc::gen::inRange(0, 200);
      lo += part.lo;
      hi += part.hi;
      parts.push_back(part);
    }
    const int64_t total = lo + *rc::gen::inRange<int64_t>(0, hi - lo + 10);
    const auto counts = divide_by_weight(parts, total);
    const auto more = divide_by_weight(parts, total + 1);
    RC_ASSERT(std::accumulate(counts.begin(), counts.end(), int64_t{0}) == std::min(total, hi));
    for (size_t i = 0; i < n; ++i) {
      RC_ASSERT(counts[i] >= parts[i].lo);
      RC_ASSERT(counts[i] <= parts[i].hi);
      RC_ASSERT(more[i] >= counts[i]);
    }
  }));
}

TEST(AsOneLayer, SplitsBackIntoItsLayers) {
  const std::vector<float> a = {1, 2, 3};
  const std::vector<float> b = {4};
  const std::vector<uint8_t> fa = {0, 0, 1};
  const std::vector<uint8_t> fb = {0};
  const std::vector<LayerScores> layers = {{.score = {a}, .is_protected = {fa}, .measured = {5}},
                                           {.score = {b, a}, .is_protected = {fb, fa}, .measured = {6, 7}}};
  const LayerScores all = as_one_layer(layers);
  ASSERT_EQ(all.score.size(), 3U);
  EXPECT_EQ(all.score[1].size(), 1U);
  EXPECT_THAT(all.measured, ElementsAre(5, 6, 7));
  const std::vector<int32_t> rows = {7, 8, 9};
  EXPECT_THAT(split_by_layer(layers, rows), ElementsAre(ElementsAre(7), ElementsAre(8, 9)));
}

}  // namespace
}  // namespace kedge::eviction
