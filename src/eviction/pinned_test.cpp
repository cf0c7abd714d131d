// Rows pinned by position: every policy keeps them, in every head that has them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "eviction/select.h"
#include "eviction/synthetic_heads.h"

namespace kedge::eviction {
namespace {

using testing::ElementsAre;

TEST(MarkPinned, GoesByPosition) {
  SyntheticSpec spec;
  spec.n_rows = 40;
  spec.seed = 4;
  const SyntheticHead head(spec);
  const HeadInput in = head.input();
  std::vector<uint8_t> pinned(static_cast<size_t>(in.rows.position(30)) + 1, 0);
  pinned[static_cast<size_t>(in.rows.position(7))] = 1;
  pinned.back() = 3;
  std::vector<uint8_t> flags(40, 0);
  mark_protected(in.rows, 0, 2, flags);
  mark_pinned(in.rows, pinned, flags);
  EXPECT_EQ(flags[7], kPinned);
  EXPECT_EQ(flags[30], kPinned);
  EXPECT_EQ(flags[38], 1);
  EXPECT_EQ(flags[39], 1);
  EXPECT_EQ(std::ranges::count(flags, 0), 36);
}

TEST(Select, PinnedRowsGoBeforeSinksAndThoseBeforeRecentOnes) {
  const std::vector<float> score = {0, 9, 9, 9, 9, 9, 0, 0};
  const std::vector<uint8_t> flags = {1, 1, 0, 2, 0, 2, 1, 1};
  EXPECT_THAT(select(score, flags, 1, 1), ElementsAre(5));
  EXPECT_THAT(select(score, flags, 2, 1), ElementsAre(3, 5));
  EXPECT_THAT(select(score, flags, 4, 1), ElementsAre(0, 1, 3, 5));
  EXPECT_THAT(select(score, flags, 5, 1), ElementsAre(0, 1, 3, 5, 7));
  EXPECT_THAT(select(score, flags, 7, 1), ElementsAre(0, 1, 2, 3, 5, 6, 7));
}

TEST(DecideLayer, EveryPolicyKeepsWhatIsPinned) {
  std::mt19937 random(5);
  SerialExecutor executor;
  for (int round = 0; round < 12; ++round) {
    SyntheticLayer layer;
    for (int h = 0; h < 3; ++h) {
      SyntheticSpec spec;
      spec.n_rows = 120 + static_cast<int>(random() % 150);
      spec.seed = static_cast<uint32_t>(random());
      spec.head = h;
      layer.push_back(std::make_unique<SyntheticHead>(spec));
    }
    std::vector<uint8_t> pinned(400, 0);
    for (int i = 0; i < 14; ++i)
      pinned[random() % pinned.size()] = 1;
    for (const Method& scorer : scorers()) {
      for (const Method& allocator : allocators()) {
        const Policy policy = policy_of(scorer.info.name + "/" + allocator.info.name);
        LayerInput in{.heads = inputs_of(layer), .n_sinks = 4, .n_recent = 30, .pinned = pinned};
        in.rows_total = round % 2 == 0 ? 60 : 0;  // recent rows give way
        in.blocks_total = 6;                      // of 16 rows, 3 of growth: 29 rows a head
        in.growth = 3;
        const LayerDecision decision = decide_layer(policy, in, executor);
        size_t n_rows = 0;
        for (size_t h = 0; h < 3; ++h) {
          n_rows += decision.keep[h].size();
          for (int32_t row = 0; row < in.heads[h].rows.n_rows; ++row) {
            const auto position = static_cast<size_t>(in.heads[h].rows.position(row));
            if (position >= pinned.size() || pinned[position] == 0)
              continue;
            EXPECT_TRUE(std::ranges::binary_search(decision.keep[h], row))
                << policy.text << ", head " << h << ", row " << row;
          }
        }
        if (in.rows_total > 0) {
          EXPECT_EQ(n_rows, 60U) << policy.text;
        }
      }
    }
  }
}

TEST(DecideLayer, NothingPinnedChangesNothing) {
  SyntheticLayer layer;
  for (int h = 0; h < 2; ++h) {
    SyntheticSpec spec;
    spec.n_rows = 200;
    spec.seed = static_cast<uint32_t>(h);
    spec.head = h;
    layer.push_back(std::make_unique<SyntheticHead>(spec));
  }
  SerialExecutor executor;
  const std::vector<uint8_t> none(300, 0);
  for (const Method& scorer : scorers()) {
    const Policy policy = policy_of(scorer.info.name);
    LayerInput in{.heads = inputs_of(layer), .n_sinks = 4, .n_recent = 20, .rows_total = 80};
    const LayerDecision plain = decide_layer(policy, in, executor);
    in.pinned = none;
    EXPECT_EQ(decide_layer(policy, in, executor).keep, plain.keep) << scorer.info.name;
  }
}

}  // namespace
}  // namespace kedge::eviction
