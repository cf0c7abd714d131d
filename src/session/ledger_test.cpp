#include "session/ledger.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>

namespace kedge::session {
namespace {

// One layer with heads of a few rows whose positions are given; blocks are never read.
struct FakeLayer {
  explicit FakeLayer(const std::vector<std::vector<int32_t>>& heads) {
    for (const std::vector<int32_t>& head : heads) {
      positions.push_back(head);
      positions.back().resize(kBlockRows, -1);
    }
    for (size_t h = 0; h < heads.size(); ++h) {
      KvHeadView rows{};
      rows.positions = positions[h].data();
      rows.block_ids = &block_id;
      rows.n_rows = static_cast<int32_t>(heads[h].size());
      rows.head_dim = 16;
      in.heads.push_back({.head = static_cast<int>(h), .rows = rows});
    }
  }
  std::vector<std::vector<int32_t>> positions;
  uint32_t block_id = 0;
  eviction::LayerInput in;
};

const std::vector<Token> kTokens = {50, 51, 52, 53, 54};

// Head 0: row 0 is protected, rows 1..3 score 5, 1, 3 and row 2 goes. Head 1: 2, 8, 6, 4, rows 0 and 3 go.
eviction::LayerDecision first_decision() {
  return {.keep = {{0, 1, 3}, {1, 2}},
          .score = {{9, 5, 1, 3}, {2, 8, 6, 4}},
          .is_protected = {{1, 0, 0, 0}, {0, 0, 0, 0}},
          .parts = {{{.name = "a", .value = {0, 10, 20, 30}}}, {{.name = "a", .value = {1, 2, 3, 4}}}}};
}

TEST(Ledger, CountsKeptScoresOfUnprotectedRows) {
  Ledger ledger(1, 2, false);
  const FakeLayer layer({{0, 1, 2, 3}, {0, 1, 2, 3}});
  ledger.record(0, layer.in, first_decision());
  ledger.add_ms(0, 1.25);
  const std::vector<LayerStats> stats = ledger.layer_stats({.n_tokens = 4, .layers = {{{0, 1, 3}, {1, 2}}}});
  ASSERT_EQ(stats.size(), 1U);
  EXPECT_EQ(stats[0].evictions, 1);
  EXPECT_EQ(stats[0].policy_ms, 1.25);
  EXPECT_EQ(stats[0].heads[0].rows, 3);
  EXPECT_EQ(stats[0].heads[0].evicted, 1);
  EXPECT_EQ(stats[0].heads[0].evictions, 1);
  EXPECT_EQ(stats[0].heads[0].mean_kept_score, 4);
  EXPECT_EQ(stats[0].heads[0].min_kept_score, 3);
  EXPECT_EQ(stats[0].heads[1].mean_kept_score, 7);
}

TEST(Ledger, AveragesRanksOverTheHeadsThatJudged) {
  Ledger ledger(1, 2, true);
  const FakeLayer layer({{0, 1, 2, 3}, {0, 1, 2, 3}});
  ledger.record(0, layer.in, first_decision());
  const KvMap held{.n_tokens = 5, .layers = {{{0, 1, 3, 4}, {1, 2, 4}}}};
  // Ranks in head 0: -, 1, 0, 1/2; in head 1: 0, 1, 2/3, 1/3. Means: 0, 1, 1/3, 5/12.
  const Explanation all = ledger.explain({.n = 2}, held, kTokens);
  EXPECT_EQ(all.n_judged, 4);
  EXPECT_EQ(all.n_heads, 2);
  ASSERT_EQ(all.best.size(), 2U);
  ASSERT_EQ(all.worst.size(), 2U);
  EXPECT_EQ(all.best[0].position, 1);
  EXPECT_EQ(all.best[0].token, 51);
  EXPECT_EQ(all.best[0].score, 6.5);
  EXPECT_EQ(all.best[0].parts, std::vector<double>{6});
  EXPECT_EQ(all.best[0].held_by, (std::vector<std::pair<int, int>>{{0, 0}, {0, 1}}));
  EXPECT_EQ(all.best[1].position, 3);
  EXPECT_EQ(all.worst[0].position, 0);
  EXPECT_EQ(all.worst[0].n_judged, 1) << "protected in head 0";
  EXPECT_EQ(all.worst[0].parts, std::vector<double>{1});
  EXPECT_EQ(all.worst[1].position, 2);
  EXPECT_EQ(all.worst[1].held_by, (std::vector<std::pair<int, int>>{{0, 1}}));
}

TEST(Ledger, OneHeadAlone) {
  Ledger ledger(1, 2, true);
  const FakeLayer layer({{0, 1, 2, 3}, {0, 1, 2, 3}});
  ledger.record(0, layer.in, first_decision());
  const KvMap held{.n_tokens = 5, .layers = {{{0, 1, 3, 4}, {1, 2, 4}}}};
  const Explanation one = ledger.explain({.n = 10, .layer = 0, .head = 0}, held, kTokens);
  EXPECT_EQ(one.n_heads, 1);
  ASSERT_EQ(one.best.size(), 3U);
  EXPECT_TRUE(one.worst.empty()) << "no token is in both lists";
  EXPECT_EQ(one.best[0].score, 5);
  EXPECT_EQ(one.best[1].score, 3);
  EXPECT_EQ(one.best[2].score, 1);
}

TEST(Ledger, TheLastJudgementCountsAndForgottenPositionsGo) {
  Ledger ledger(1, 1, true);
  const FakeLayer before({{0, 1, 2}});
  ledger.record(0, before.in, {.keep = {{0, 1}}, .score = {{3, 2, 1}}, .is_protected = {{0, 0, 0}}, .parts = {{}}});
  const FakeLayer after({{0, 1, 4}});
  ledger.record(0, after.in, {.keep = {{1, 2}}, .score = {{1, 7, 9}}, .is_protected = {{0, 0, 0}}, .parts = {{}}});
  const KvMap held{.n_tokens = 5, .layers = {{{1, 4}}}};
  Explanation all = ledger.explain({.n = 4}, held, kTokens);
  EXPECT_EQ(all.n_judged, 4);
  EXPECT_EQ(all.best[0].position, 4);
  EXPECT_EQ(all.best[1].score, 7);
  EXPECT_EQ(all.best[2].position, 0) << "the worst of those that were left";
  EXPECT_NEAR(all.best[2].rank, 1.0 / 3, 1e-6) << "is above the one that went before";
  EXPECT_EQ(all.best[3].position, 2);
  ledger.forget(2);
  all = ledger.explain({.n = 4}, {.n_tokens = 2, .layers = {{{1}}}}, std::span(kTokens).first(2));
  EXPECT_EQ(all.n_judged, 2);
}

TEST(Ledger, PartsThatWereToldBeforeTheDecisionStay) {
  Ledger ledger(1, 2, true);
  const FakeLayer layer({{0, 1, 2, 3}, {0, 1, 2, 3}});
  eviction::LayerDecision decision = first_decision();
  ledger.record_parts(0, layer.in, decision.parts);
  decision.parts.clear();
  ledger.record(0, layer.in, decision);
  const KvMap held{.n_tokens = 5, .layers = {{{0, 1, 3, 4}, {1, 2, 4}}}};
  const Explanation all = ledger.explain({.n = 1}, held, kTokens);
  EXPECT_EQ(all.part_names, std::vector<std::string>{"a"});
  EXPECT_EQ(all.best[0].parts, std::vector<double>{6});
  EXPECT_EQ(all.worst[0].parts, std::vector<double>{1}) << "of the head that judged the row";
}

TEST(Ledger, OtherPartsThanThePolicysAreLeftOut) {
  Ledger ledger(1, 2, true);
  const FakeLayer layer({{0, 1, 2, 3}, {0, 1, 2, 3}});
  ledger.record(0, layer.in, first_decision());
  eviction::LayerDecision late = first_decision();
  late.parts = {{}, {}};
  ledger.record(0, layer.in, late);
  const Explanation all =
      ledger.explain({.n = 1}, {.n_tokens = 4, .layers = {{{0, 1, 3}, {1, 2}}}}, std::span(kTokens).first(4));
  EXPECT_EQ(all.part_names, std::vector<std::string>{"a"});
  EXPECT_TRUE(std::isnan(all.best[0].parts[0]));
}

}  // namespace
}  // namespace kedge::session
