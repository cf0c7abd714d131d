#include "session/planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

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
int64_t worst_blocks(const Plan& plan) {
  const int64_t chunk = working_blocks(kShape, plan.chunk_tokens);
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

}  // namespace
}  // namespace kedge::session
