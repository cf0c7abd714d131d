#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "eviction/compete.h"
#include "eviction/synthetic_heads.h"

namespace kedge::eviction {
namespace {

using testing::ElementsAre;

struct Layer {
  std::vector<std::vector<float>> score;
  std::vector<std::vector<uint8_t>> flags;
  int chunk = 1;

  LayerScores view() const {
    LayerScores scores{.score = {}, .is_protected = {}, .chunk = chunk};
    for (const auto& one : score)
      scores.score.emplace_back(one);
    for (const auto& one : flags)
      scores.is_protected.emplace_back(one);
    return scores;
  }
  std::vector<int32_t> minima() const {
    std::vector<int32_t> out;
    for (size_t h = 0; h < score.size(); ++h)
      out.push_back(minimum_rows(flags[h], score[h].size()));
    return out;
  }
  int64_t n_rows() const {
    int64_t n = 0;
    for (const auto& one : score)
      n += static_cast<int64_t>(one.size());
    return n;
  }
};

Layer random_layer(std::mt19937& random, int chunk, bool ragged) {
  Layer layer{.score = {}, .flags = {}, .chunk = chunk};
  const size_t n_heads = 1 + random() % 6;
  for (size_t h = 0; h < n_heads; ++h) {
    const size_t n = ragged ? 1 + random() % 150 : 100;
    std::vector<float> score(n);
    for (float& s : score)
      s = std::normal_distribution<float>(0, 1.0F + static_cast<float>(h))(random);
    std::vector<uint8_t> flags(n, 0);
    for (size_t i = 0; i < n; ++i)
      flags[i] = i < 2 || i + random() % 10 >= n ? 1 : 0;
    layer.score.push_back(score);
    layer.flags.push_back(flags);
  }
  return layer;
}

int64_t sum_of(const std::vector<int32_t>& v) { return std::accumulate(v.begin(), v.end(), int64_t{0}); }

std::vector<std::string> allocator_texts() {
  std::vector<std::string> texts = {"random/pooled:floor=0.2", "random/pooled:floor=1"};
  for (const Method& method : allocators())
    texts.push_back("random/" + method.info.name);
  return texts;
}

TEST(Allocators, SumExactlyAndKeepMinima) {
  std::mt19937 random(31);
  for (const std::string& text : allocator_texts()) {
    const Policy policy = policy_of(text);
    for (int round = 0; round < 500; ++round) {
      const Layer layer = random_layer(random, 1 + static_cast<int>(random() % 5), true);
      const auto minima = layer.minima();
      const int64_t total = sum_of(minima) + static_cast<int64_t>(random() % (layer.n_rows() - sum_of(minima) + 10));
      const auto rows = policy.allocator->allocate(layer.view(), total);
      ASSERT_EQ(sum_of(rows), std::min(total, layer.n_rows())) << text;
      for (size_t h = 0; h < rows.size(); ++h) {
        ASSERT_GE(rows[h], minima[h]) << text;
        ASSERT_LE(rows[h], static_cast<int32_t>(layer.score[h].size())) << text;
      }
      // Less than what is protected: never a crash, never an empty head.
      const int64_t too_little = static_cast<int64_t>(random() % (sum_of(minima) + 1)) - 1;
      const auto few = policy.allocator->allocate(layer.view(), too_little);
      ASSERT_EQ(sum_of(few), std::max<int64_t>(too_little, static_cast<int64_t>(few.size()))) << text;
      for (const int32_t r : few)
        ASSERT_GE(r, 1) << text;
    }
  }
}

TEST(Allocators, PermutingHeadsPermutesRows) {
  std::mt19937 random(32);
  for (const std::string& text : allocator_texts()) {
    const Policy policy = policy_of(text);
    for (int round = 0; round < 100; ++round) {
      const Layer layer = random_layer(random, 1 + static_cast<int>(random() % 4), false);
      const size_t n = layer.score.size();
      std::vector<size_t> order(n);
      std::iota(order.begin(), order.end(), size_t{0});
      std::shuffle(order.begin(), order.end(), random);
      Layer permuted{.score = {}, .flags = {}, .chunk = layer.chunk};
      for (const size_t h : order) {
        permuted.score.push_back(layer.score[h]);
        permuted.flags.push_back(layer.flags[h]);
      }
      const int64_t total = static_cast<int64_t>(n) * 40;  // divides: no remainder that goes by index
      const auto rows = policy.allocator->allocate(layer.view(), total);
      const auto rows_permuted = policy.allocator->allocate(permuted.view(), total);
      for (size_t i = 0; i < n; ++i)
        ASSERT_EQ(rows_permuted[i], rows[order[i]]) << text;
    }
  }
}

TEST(Allocators, MoreRowsInTotalMeansNoHeadHasFewer) {
  std::mt19937 random(33);
  for (const char* text : {"random/uniform", "random/pooled"}) {
    const Policy policy = policy_of(text);
    for (int round = 0; round < 30; ++round) {
      const Layer layer = random_layer(random, 3, true);
      std::vector<int32_t> before = layer.minima();
      for (int64_t total = sum_of(before); total <= layer.n_rows(); ++total) {
        const auto rows = policy.allocator->allocate(layer.view(), total);
        for (size_t h = 0; h < rows.size(); ++h)
          ASSERT_GE(rows[h], before[h]) << text << " total " << total;
        before = rows;
      }
    }
  }
}

TEST(Pooled, IsOneTopKOverAllHeads) {
  const Layer layer{.score = {{9, 1, 1, 1, 8, 7}, {2, 2, 2, 2, 2, 2}},
                    .flags = {{0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 1}}};
  const auto rows = [&](const char* text, int64_t total) {
    return policy_of(text).allocator->allocate(layer.view(), total);
  };
  EXPECT_THAT(rows("random/pooled", 4), ElementsAre(3, 1));
  EXPECT_THAT(rows("random/pooled", 6), ElementsAre(3, 3));
  EXPECT_THAT(rows("random/pooled:floor=1", 4), ElementsAre(2, 2));
  EXPECT_THAT(rows("random/pooled:floor=0.5", 8), ElementsAre(3, 5));
  EXPECT_THAT(rows("random/uniform", 4), ElementsAre(2, 2));
}

TEST(Pooled, ChunksCompeteByTheirSum) {
  // Sums of pairs: 9, 4, 2 against 8, 6, 4.
  const Layer layer{
      .score = {{9, 0, 2, 2, 1, 1}, {4, 4, 3, 3, 2, 2}}, .flags = {{0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0}}, .chunk = 2};
  const auto rows = [&](int64_t total) { return policy_of("random/pooled").allocator->allocate(layer.view(), total); };
  EXPECT_THAT(rows(2), ElementsAre(1, 1));  // one row each is sure
  EXPECT_THAT(rows(4), ElementsAre(2, 2));
  EXPECT_THAT(rows(6), ElementsAre(2, 4));
  EXPECT_THAT(rows(7), ElementsAre(3, 4));  // 4 against 4: the tie goes to the earlier row
}

TEST(TakeBest, EqualsSortingOnRandomInput) {
  std::mt19937 random(34);
  for (int round = 0; round < 2000; ++round) {
    std::vector<Unit> units(random() % 60);
    int64_t there_are = 0;
    for (size_t i = 0; i < units.size(); ++i) {
      units[i] = {.key = static_cast<double>(random() % 7),
                  .head = static_cast<int32_t>(random() % 3),
                  .begin = static_cast<int32_t>(i),
                  .n_rows = 1 + static_cast<int32_t>(random() % 5),
                  .has_nan = random() % 9 == 0};
      there_are += units[i].n_rows;
    }
    std::vector<Unit> sorted = units;
    std::sort(sorted.begin(), sorted.end(), beats);
    const int64_t rows = static_cast<int64_t>(random() % (there_are + 3));
    const Taken taken = take_best(units, rows);
    int64_t held = 0;
    for (size_t u = 0; u < taken.n_units; ++u)
      held += u + 1 == taken.n_units ? taken.rows_of_last : units[u].n_rows;
    ASSERT_EQ(held, std::min(rows, there_are));
    std::sort(units.begin(), units.begin() + static_cast<long>(taken.n_units), beats);
    for (size_t u = 0; u < taken.n_units; ++u)
      ASSERT_EQ(units[u].begin, sorted[u].begin);
  }
}

}  // namespace
}  // namespace kedge::eviction
