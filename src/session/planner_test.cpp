#include "session/planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "session/layer_targets.h"

namespace kedge::session {
namespace {

const kv::StoreShape kShape{.n_layers = 30, .n_kv_heads = 3, .head_dim = 64};

Budget budget_of(const std::string& text) {
  Result<Budget> budget = parse_budget(text);
  EXPECT_TRUE(budget.ok()) << text;
  return budget.ok() ? *budget : Budget{};
}

Result<Plan> plan_for(const std::string& budget, const Request& request, const std::string& policy = "andpro") {
  Result<eviction::Policy> parsed = eviction::parse_policy(policy, {});
  EXPECT_TRUE(parsed.ok()) << policy;
  return make_plan(kShape, budget_of(budget), *parsed, request);
}

int64_t blocks_of(const Plan& plan) { return plan.budget_bytes / kv::block_bytes_total(kShape); }

// What the store holds at most while a plan is carried out: every layer at its target, one with the chunk's rows as
// well.
int64_t worst_blocks(const Plan& plan, int64_t probe_extra = 0) {
  const int64_t chunk = working_blocks(kShape, plan.chunk_tokens + probe_rows(plan.chunk_tokens, probe_extra));
  const int64_t at_first = plan.after_prompt.blocks - kShape.n_kv_heads * (plan.after_prompt.growth / kBlockRows);
  const int64_t held = std::max(plan.between_chunks.blocks, at_first);
  return (kShape.n_layers - 1) * held + chunk + (plan.layer_major ? 0 : held);
}

TEST(Planner, BudgetThatHoldsEverythingEvictsNothing) {
  for (const char* budget : {"100%", "unlimited", "64MiB", "1200tok"}) {
    const Result<Plan> plan = plan_for(budget, {.prompt_tokens = 1000, .generated_tokens = 100, .n_ctx = 2048});
    ASSERT_TRUE(plan.ok()) << budget;
    EXPECT_FALSE(plan->evicts) << budget;
    EXPECT_EQ(plan->chunk_tokens, 2048) << budget;
    EXPECT_GE(plan->budget_bytes, plan->full_bytes) << budget;
  }
}

TEST(Planner, RowsThatThePromptDoesNotNeedAreThereForWhatFollows) {
  const Result<Plan> small = plan_for("500tok", {.prompt_tokens = 500, .generated_tokens = 0});
  const Result<Plan> large = plan_for("1000tok", {.prompt_tokens = 500, .generated_tokens = 0});
  ASSERT_TRUE(small.ok() && large.ok());
  EXPECT_GE(blocks_of(*large), 2 * blocks_of(*small) - kShape.n_layers * kShape.n_kv_heads);
  EXPECT_FALSE(large->evicts);
}

TEST(Planner, BytesAreAHardLimit) {
  for (const char* budget : {"16MiB", "8MiB", "4MiB", "2MiB"}) {
    for (const int64_t prompt : {200, 1000, 4000, 8000, 60000}) {
      for (const int64_t generated : {-1, 0, 1, 16, 500}) {
        SCOPED_TRACE(testing::Message() << budget << " prompt " << prompt << " generated " << generated);
        const Result<Plan> plan = plan_for(budget, {.prompt_tokens = prompt, .generated_tokens = generated});
        ASSERT_TRUE(plan.ok()) << plan.error().message;
        EXPECT_LE(plan->budget_bytes, static_cast<int64_t>(budget_of(budget).value));
        if (!plan->evicts)
          continue;
        EXPECT_LE(worst_blocks(*plan), blocks_of(*plan));
        EXPECT_LE(kShape.n_layers * plan->decoding.blocks, blocks_of(*plan));
        EXPECT_LE(kShape.n_layers * plan->after_prompt.blocks, blocks_of(*plan));
        EXPECT_LE(kShape.n_layers * plan->followup.blocks + working_blocks(kShape, plan->followup_chunk_tokens),
                  blocks_of(*plan));
        EXPECT_GT(plan->rows_per_head, 1);
      }
    }
  }
}

TEST(Planner, SharesAreRowsAndTheirBytesFollow) {
  const Result<Plan> plan = plan_for("10%", {.prompt_tokens = 1024, .generated_tokens = 8});
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(plan->layer_major);
  EXPECT_LE(worst_blocks(*plan), blocks_of(*plan));
  EXPECT_NEAR(plan->rows_per_head, 103 - 8, 6);
}

TEST(Planner, PerplexityKeepsExactlyTheNamedShare) {
  const Result<Plan> plan =
      plan_for("25%", {.prompt_tokens = 1024, .generated_tokens = 128, .hold_continuation = true});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->after_prompt.rows_exact, 256 * 3);
  const Result<Plan> whole =
      plan_for("100%", {.prompt_tokens = 1024, .generated_tokens = 128, .hold_continuation = true});
  ASSERT_TRUE(whole.ok());
  EXPECT_FALSE(whole->evicts);
}

TEST(Planner, ImpossibleBudgetsAreRefusedWithASmallestThatWorks) {
  const Result<Plan> plan = plan_for("100KiB", {.prompt_tokens = 1200, .generated_tokens = -1});
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, ErrorCode::budget_impossible);
  const std::string& message = plan.error().message;
  const size_t at = message.find("works here is ");
  ASSERT_NE(at, std::string::npos) << message;
  const std::string smallest = message.substr(at + 14);
  const Result<Plan> retry = plan_for(smallest, {.prompt_tokens = 1200, .generated_tokens = -1});
  EXPECT_TRUE(retry.ok()) << smallest << ": " << retry.error().message;
}

// A chunk's repetition adds min(n, 2048) rows and the instruction's to the layer that reads it.
TEST(Planner, RepetitionsAreWorkingSpace) {
  EXPECT_EQ(probe_rows(100, 0), 0);
  EXPECT_EQ(probe_rows(100, 24), 124);
  EXPECT_EQ(probe_rows(5000, 24), 2048 + 24);
  int n_smaller = 0;
  for (const char* budget : {"2MiB", "4MiB", "9MiB", "16MiB", "64MiB", "10%", "40%", "200tok"}) {
    for (const int64_t prompt : {100, 1000, 3000, 9000, 40000}) {
      for (const PrefillOrder order : {PrefillOrder::automatic, PrefillOrder::chunked}) {
        for (const int64_t extra : {9, 24, 75}) {
          SCOPED_TRACE(testing::Message() << budget << " prompt " << prompt << " extra " << extra);
          const Request plain{.prompt_tokens = prompt, .generated_tokens = 20, .order = order};
          Request repeated = plain;
          repeated.probe_extra = extra;
          const Result<Plan> plan = plan_for(budget, repeated, "kvzip");
          ASSERT_TRUE(plan.ok()) << plan.error().message;
          if (!plan->evicts)
            continue;
          EXPECT_LE(worst_blocks(*plan, extra), blocks_of(*plan));
          EXPECT_LE(kShape.n_layers * plan->decoding.blocks, blocks_of(*plan));
          const int64_t followup = plan->followup_chunk_tokens;
          EXPECT_LE(
              kShape.n_layers * plan->followup.blocks + working_blocks(kShape, followup + probe_rows(followup, extra)),
              blocks_of(*plan));
          const Result<Plan> without = plan_for(budget, plain, "kvzip");
          ASSERT_TRUE(without.ok());
          n_smaller += plan->chunk_tokens < without->chunk_tokens ? 1 : 0;
        }
      }
    }
  }
  EXPECT_GT(n_smaller, 0) << "bytes that the repetition takes are missing elsewhere";
}

TEST(Planner, AFullCacheThatIsRepeatedHasRoomForIt) {
  const Request request{.prompt_tokens = 500, .generated_tokens = 0, .n_ctx = 500, .probe_extra = 24};
  const Result<Plan> plan = plan_for("unlimited", request, "none");
  ASSERT_TRUE(plan.ok());
  const int64_t heads = int64_t{kShape.n_layers} * kShape.n_kv_heads;
  EXPECT_GE(blocks_of(*plan), heads * 32 + kShape.n_kv_heads * (524 + 15) / 16);
}

TEST(Planner, PolicyThatEvictsNothingNeedsRoomForAll) {
  EXPECT_FALSE(plan_for("4MiB", {.prompt_tokens = 8000, .generated_tokens = 10}, "none").ok());
  EXPECT_TRUE(plan_for("64MiB", {.prompt_tokens = 1000, .generated_tokens = 10}, "none").ok());
}

TEST(Planner, OverflowErrorNamesBothNumbers) {
  const Result<Plan> plan =
      plan_for("4MiB", {.prompt_tokens = 8000, .generated_tokens = 10, .overflow = Overflow::error});
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, ErrorCode::context_too_long);
  EXPECT_NE(plan.error().message.find("8000"), std::string::npos);
}

TEST(Planner, AShortRequestIsNotEvictedBelowTheColdStart) {
  const Result<Plan> plan = plan_for("25%", {.prompt_tokens = 40, .generated_tokens = 10});
  ASSERT_TRUE(plan.ok());
  EXPECT_FALSE(plan->evicts);
}

TEST(Planner, EveryShareAndLengthHasAPlan) {
  for (const char* policy : {"andpro", "snapkv", "streaming", "random", "recent", "andpro/uniform/after-prompt"}) {
    for (const char* budget : {"1%", "5%", "50%", "99%", "1tok", "100tok", "5000tok"}) {
      for (const int64_t prompt : {1, 2, 17, 100, 101, 999, 5000, 40000}) {
        SCOPED_TRACE(testing::Message() << policy << " " << budget << " prompt " << prompt);
        const Result<Plan> plan = plan_for(budget, {.prompt_tokens = prompt, .generated_tokens = 3}, policy);
        ASSERT_TRUE(plan.ok()) << plan.error().message;
        if (plan->evicts) {
          EXPECT_LE(worst_blocks(*plan), blocks_of(*plan));
        }
      }
    }
  }
}

// A branch of t tokens: its rows, a copy of each head's last block, and the copies of one layer.
TEST(Planner, ABranchGetsItsRoomInsideABudgetInBytesAndBesideOneInRows) {
  const Request plain{.prompt_tokens = 4000, .generated_tokens = 0};
  Request branch = plain;
  branch.branch_tokens = 100;
  const int64_t room = 31 * 3 * (7 + 1);  // (layers + 1) x heads x (7 blocks of rows and a tail)
  const Result<Plan> bytes = plan_for("16MiB", branch);
  const Result<Plan> rows = plan_for("512tok", branch);
  ASSERT_TRUE(bytes.ok() && rows.ok());
  EXPECT_EQ(bytes->branch_blocks, room);
  EXPECT_EQ(bytes->budget_bytes, plan_for("16MiB", plain)->budget_bytes);
  EXPECT_LT(bytes->rows_per_head, plan_for("16MiB", plain)->rows_per_head);
  EXPECT_EQ(rows->branch_blocks, room);
  EXPECT_EQ(blocks_of(*rows), blocks_of(*plan_for("512tok", plain)) + room);
  EXPECT_EQ(rows->rows_per_head, plan_for("512tok", plain)->rows_per_head);
  EXPECT_NE(bytes->line.find("left for a branch"), std::string::npos);

  branch.branch_tokens = -1;  // not known: half of the bytes, as much again as the rows
  EXPECT_EQ(plan_for("16MiB", branch)->branch_blocks, blocks_of(*plan_for("16MiB", plain)) / 2);
  EXPECT_EQ(blocks_of(*plan_for("512tok", branch)), 2 * blocks_of(*plan_for("512tok", plain)));
}

TEST(Planner, TheLeastBudgetWithABranchWorks) {
  for (const int64_t tokens : {int64_t{-1}, int64_t{10}, int64_t{5000}}) {
    const Request request{.prompt_tokens = 4000, .generated_tokens = 0, .branch_tokens = tokens};
    const Result<Plan> refused = plan_for("200KiB", request);
    ASSERT_FALSE(refused.ok());
    const std::string& message = refused.error().message;
    const size_t unit = message.rfind("KiB");
    const size_t begin = message.find_last_not_of("0123456789", unit - 1) + 1;
    const int64_t least = std::stoll(message.substr(begin, unit - begin));
    EXPECT_TRUE(plan_for(std::to_string(least) + "KiB", request).ok()) << message;
    EXPECT_FALSE(plan_for(std::to_string(least - 10) + "KiB", request).ok()) << message;
  }
}

// While a layer of a branch is copied, all layers own at most their shares, and a chunk that is being read has its
// room.
TEST(Planner, ABranchThatEvictsFitsBesideTheMark) {
  const Result<eviction::Policy> policy = eviction::parse_policy("andpro", {});
  ASSERT_TRUE(policy.ok());
  const Request request{.prompt_tokens = 4000, .generated_tokens = 0, .branch_tokens = -1};
  const Result<Plan> plan = plan_for("16MiB", request);
  ASSERT_TRUE(plan.ok());
  for (const int64_t own : {plan->branch_blocks, plan->branch_blocks / 2, plan->branch_blocks / 5}) {
    const Plan branch = plan_branch(kShape, *policy, request, *plan, own);
    EXPECT_EQ(branch.budget_bytes, plan->budget_bytes);
    EXPECT_LE((kShape.n_layers + 1) * branch.decoding.blocks, own);
    EXPECT_GT((kShape.n_layers + 1) * (branch.decoding.blocks + 1), own);
    const int64_t working = working_blocks(kShape, branch.followup_chunk_tokens);
    EXPECT_LE((kShape.n_layers + 1) * branch.followup.blocks + working, own);
    EXPECT_EQ(planned_blocks(kShape, branch), kShape.n_layers * branch.decoding.blocks);
    EXPECT_GT(branch.decoding.growth, 1) << "evicted after each token";
  }
}

// ---- quantised rows ----

kv::StoreShape quantised_shape() {
  kv::StoreShape shape = kShape;
  shape.type = RowType::q4;
  return shape;
}

Result<Plan> quantised_plan(const std::string& budget, const Request& request, const std::string& policy = "andpro") {
  return make_plan(quantised_shape(), budget_of(budget), *eviction::parse_policy(policy, {}), request);
}

// Blocks for all rows beside f16 rows for the window and the batch: together within the bytes.
TEST(PlannerQuantised, BytesAreAHardLimitWithTheF16Rows) {
  for (const char* budget : {"64MiB", "16MiB", "4MiB", "2MiB", "1MiB"}) {
    for (const int64_t prompt : {200, 1000, 8000, 60000}) {
      for (const int64_t generated : {-1, 0, 16, 500}) {
        SCOPED_TRACE(testing::Message() << budget << " prompt " << prompt << " generated " << generated);
        const Result<Plan> plan = quantised_plan(budget, {.prompt_tokens = prompt, .generated_tokens = generated});
        ASSERT_TRUE(plan.ok()) << plan.error().message;
        EXPECT_LE(plan->budget_bytes, static_cast<int64_t>(budget_of(budget).value));
        if (!plan->evicts)
          continue;
        kv::StoreShape shape = quantised_shape();
        shape.f16_window = plan->f16_rows.window;
        const int64_t blocks =
            (plan->budget_bytes - kv::tail_bytes(shape, plan->f16_rows.ubatch_tokens)) / kv::block_bytes_total(shape);
        EXPECT_LE(worst_blocks(*plan), blocks);
        EXPECT_LE(kShape.n_layers * plan->decoding.blocks, blocks);
      }
    }
  }
}

TEST(PlannerQuantised, HoldsAboutThreeTimesTheRowsOfF16) {
  for (const auto& [budget, least] : {std::pair{"64MiB", 3.2}, {"16MiB", 3.0}, {"4MiB", 2.7}}) {
    const Request request{.prompt_tokens = 60000, .generated_tokens = -1};
    const Result<Plan> f16 = plan_for(budget, request);
    const Result<Plan> q4 = quantised_plan(budget, request);
    ASSERT_TRUE(f16.ok() && q4.ok());
    EXPECT_GT(static_cast<double>(q4->decoding.blocks), least * static_cast<double>(f16->decoding.blocks)) << budget;
    EXPECT_EQ(q4->token_bytes, 30 * 3 * 68);
    EXPECT_EQ(f16->token_bytes, 30 * 3 * 256);
  }
}

TEST(PlannerQuantised, ASmallBudgetGivesUpF16RowsAndALargeOneDoesNot) {
  const Result<Plan> large = quantised_plan("64MiB", {.prompt_tokens = 60000});
  ASSERT_TRUE(large.ok());
  EXPECT_EQ(large->f16_rows.window, 32);
  EXPECT_EQ(large->f16_rows.ubatch_tokens, 512);
  const Result<Plan> small = quantised_plan("2MiB", {.prompt_tokens = 60000});
  ASSERT_TRUE(small.ok());
  EXPECT_EQ(small->f16_rows.window, 0);
  EXPECT_EQ(small->f16_rows.ubatch_tokens, 16);
  const Result<Plan> fits = quantised_plan("3MiB", {.prompt_tokens = 100, .generated_tokens = 10});
  ASSERT_TRUE(fits.ok());
  EXPECT_EQ(fits->f16_rows.window, 32) << "everything fits: as without a budget";
  EXPECT_EQ(fits->f16_rows.ubatch_tokens, 512);
}

TEST(PlannerQuantised, ImpossibleBudgetsNameTheF16RowsAndASmallestThatWorks) {
  const Result<Plan> plan = quantised_plan("100KiB", {.prompt_tokens = 1200});
  ASSERT_FALSE(plan.ok());
  const std::string& message = plan.error().message;
  EXPECT_NE(message.find("bytes of f16 rows"), std::string::npos) << message;
  const size_t at = message.find("works here is ");
  ASSERT_NE(at, std::string::npos) << message;
  const Result<Plan> retry = quantised_plan(message.substr(at + 14), {.prompt_tokens = 1200});
  EXPECT_TRUE(retry.ok()) << message << "\n" << retry.error().message;
}

TEST(PlannerQuantised, FullCachesAreCountedInF16) {
  const Request request{.prompt_tokens = 1000, .generated_tokens = 8};
  EXPECT_EQ(quantised_plan("100%", request)->full_bytes, plan_for("100%", request)->full_bytes);
}

// Where layers differ, one layer's rows fit beside the shares of all layers, whichever is the largest and whichever
// comes last.
TEST(Planner, LayersThatDifferFitWhileTheyTakeTurns) {
  for (const char* policy : {"andpro/pyramid", "snapkv/pyramid:beta=1000", "andpro/retention:start=1,end=9"}) {
    for (const char* budget : {"16MiB", "8MiB", "4MiB", "5%", "25%", "80%", "300tok"}) {
      for (const int64_t prompt : {200, 1000, 8000, 60000}) {
        for (const int64_t generated : {-1, 1, 500}) {
          SCOPED_TRACE(testing::Message() << policy << " " << budget << " " << prompt << " " << generated);
          const Result<Plan> plan = plan_for(budget, {.prompt_tokens = prompt, .generated_tokens = generated}, policy);
          ASSERT_TRUE(plan.ok()) << plan.error().message;
          if (!plan->evicts)
            continue;
          const eviction::Policy parsed = std::move(eviction::parse_policy(policy, {})).value();
          LayerWeights layers{.n_kv_heads = kShape.n_kv_heads, .fixed_rows = fixed_rows(parsed)};
          for (int l = 0; l < kShape.n_layers; ++l)
            layers.weight.push_back(parsed.allocator->layer_weight(l, kShape.n_layers));
          const auto between = weigh_layers(plan->between_chunks, layers);
          const auto after = weigh_layers(plan->after_prompt, layers);
          const auto later = weigh_layers(plan->decoding, layers);
          int64_t held = 0;
          for (const EvictionTarget& target : between)
            held += plan->layer_major ? 0 : target.blocks;
          const int64_t chunk = working_blocks(kShape, plan->chunk_tokens);
          for (size_t l = 0; l < between.size(); ++l) {
            EXPECT_LE(held + chunk, blocks_of(*plan)) << "layer " << l;
            const int64_t at_first = after[l].blocks - kShape.n_kv_heads * (after[l].growth / kBlockRows);
            held += at_first - (plan->layer_major ? 0 : between[l].blocks);
          }
          int64_t decoding = 0;
          for (const EvictionTarget& target : later)
            decoding += target.blocks;
          EXPECT_LE(decoding, blocks_of(*plan));
          EXPECT_GE(after.front().blocks + after.back().blocks, 2 * kShape.n_kv_heads);
          if (prompt >= 8000) {  // shorter ones may fit into every layer
            EXPECT_NE(after.front().blocks, after.back().blocks);
          }
        }
      }
    }
  }
}

// In whole: what layers share when the last one has been scored fits beside the last one's rows, so that no row is lost
// on the way.
TEST(Planner, LayersThatShareKeepOnTheWayWhatTheyKeepInTheEnd) {
  for (const char* budget : {"16MiB", "8MiB", "10%", "300tok"}) {
    for (const bool hold : {false, true}) {
      const Result<Plan> plan = plan_for(
          budget, {.prompt_tokens = 2000, .generated_tokens = 100, .hold_continuation = hold}, "andpro/pooled-all");
      ASSERT_TRUE(plan.ok()) << plan.error().message;
      ASSERT_TRUE(plan->layer_major);
      const int64_t on_the_way = blocks_of(*plan) - working_blocks(kShape, plan->chunk_tokens);
      const int64_t at_first = plan->after_prompt.blocks - kShape.n_kv_heads * (plan->after_prompt.growth / kBlockRows);
      EXPECT_LE(kShape.n_layers * at_first, on_the_way) << budget;
    }
  }
}

}  // namespace
}  // namespace kedge::session
