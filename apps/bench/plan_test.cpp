#include "bench/plan.h"

#include <gtest/gtest.h>

#include "bench/turn.h"
#include "cli/options.h"

namespace kedge::bench {
namespace {

Result<Plan> plan_of(const std::vector<std::string>& words) {
  const auto nothing = [](const std::string&) -> std::optional<std::string> { return std::nullopt; };
  const Result<cli::Settings> settings = cli::read_settings(cli::kBench, words, nothing);
  if (!settings)
    return settings.error();
  return make_plan(*settings);
}

std::vector<std::string> tests_of(const Plan& plan) {
  std::vector<std::string> names;
  for (const Group& group : plan.groups)
    names.push_back(group.test.name());
  return names;
}

std::vector<std::string> variants_of(const Plan& plan) {
  std::vector<std::string> names;
  for (const Variant& variant : plan.variants)
    names.push_back(variant.budget_text() + " " + variant.policy);
  return names;
}

using Names = std::vector<std::string>;

TEST(Plan, DefaultsAreLlamaBenchs) {
  const Result<Plan> plan = plan_of({});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(tests_of(*plan), (Names{"pp512", "tg128"}));
  EXPECT_EQ(variants_of(*plan), Names{"full none"});
  EXPECT_EQ(plan->repetitions, 5);
  EXPECT_TRUE(plan->warmup);
  EXPECT_FALSE(plan->beside_llama);
  EXPECT_EQ(plan->most_tokens(), 512);
}

TEST(Plan, TestsAreTheCrossProductOfKindsAndDepths) {
  const Result<Plan> plan = plan_of({"-p", "512,1024", "-n", "0", "-pg", "256,64", "-d", "0,4096"});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(tests_of(*plan),
            (Names{"pp512", "pp1024", "pp256+tg64", "pp512 @ d4096", "pp1024 @ d4096", "pp256+tg64 @ d4096"}));
  EXPECT_EQ(plan->most_tokens(), 4096 + 1024);
}

TEST(Plan, SetupsAreTheCrossProductOfThreadsAndBatches) {
  const Result<Plan> plan = plan_of({"-n", "0", "-t", "1,2", "-ub", "128", "-ctk", "f16,q8_0", "-ctv", "q4_0"});
  ASSERT_TRUE(plan.ok());
  ASSERT_EQ(plan->groups.size(), 4U);
  EXPECT_EQ(plan->groups[0].setup,
            (bench::Setup{.n_threads = 1, .n_ubatch = 128, .cache_type_k = "f16", .cache_type_v = "q4_0"}));
  EXPECT_EQ(plan->groups[3].setup,
            (bench::Setup{.n_threads = 2, .n_ubatch = 128, .cache_type_k = "q8_0", .cache_type_v = "q4_0"}));
}

TEST(Plan, TheFullCacheIsOneVariant) {
  const Result<Plan> plan = plan_of({"--kv-budget", "none,10%", "--kv-policy", "andpro:window=8,pool=3,streaming"});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(variants_of(*plan), (Names{"full none", "10% andpro:window=8,pool=3", "10% streaming"}));
}

TEST(Plan, MistakesAreUsageErrors) {
  const std::vector<std::pair<Names, std::string>> cases = {
      {{"-p", "0", "-n", "0"}, "nothing to run"},
      {{"-p", "12x"}, "--n-prompt"},
      {{"-d", "-5"}, "--n-depth"},
      {{"-pg", "12"}, "--prompt-gen"},
      {{"-t", "600"}, "--threads"},
      {{"-b", "8"}, "--batch-size"},
      {{"-ctk", "f32"}, "--cache-type-k"},
      {{"-ctv", "q5_0"}, "--cache-type-v"},
      {{"--kv-f16-window", "-16"}, "--kv-f16-window"},
      {{"-r", "0"}, "--repetitions"},
      {{"-o", "sql"}, "--output"},
      {{"--vs", "vllm"}, "--vs"},
      {{"--kv-budget", "10"}, "10"},
      {{"--kv-policy", "andpor"}, "andpro"},
  };
  for (const auto& [words, expected] : cases) {
    const Result<Plan> plan = plan_of(words);
    ASSERT_FALSE(plan.ok()) << expected;
    EXPECT_EQ(plan.error().code, ErrorCode::usage) << expected;
    EXPECT_NE(plan.error().message.find(expected), std::string::npos) << plan.error().message;
  }
}

// The depth is the announced prompt; what is timed follows it.
TEST(Plan, WhatASessionIsAskedFor) {
  const Variant variant{.budget = *parse_budget("10%"), .policy = "snapkv", .sinks = "2", .recent = "16"};
  const SessionOptions options = options_for({.n_batch = 256, .n_ubatch = 64, .cache_type_k = "bf16", .f16_window = 64},
                                             {.n_gen = 30, .depth = 1000}, variant);
  EXPECT_EQ(options.expected_prompt, 1000);
  EXPECT_EQ(options.expected_generated, 30);
  EXPECT_EQ(options.n_ctx, 1030);
  EXPECT_EQ(options.n_batch, 256);
  EXPECT_EQ(options.n_ubatch, 64);
  EXPECT_EQ(options.cache_type_k, "bf16");
  EXPECT_EQ(options.cache_type_v, "f16");
  EXPECT_EQ(options.f16_window, 64);
  EXPECT_EQ(options.policy, "snapkv");
  EXPECT_EQ(options.sinks, "2");
  EXPECT_EQ(options.recent, "16");
  EXPECT_DOUBLE_EQ(options.budget.value, 0.1);
  const Variant full{.budget = Budget(), .policy = "none"};
  const SessionOptions shallow = options_for({}, {.n_prompt = 512}, full);
  EXPECT_EQ(shallow.expected_prompt, 512);
  EXPECT_EQ(shallow.expected_generated, 0);
}

}  // namespace
}  // namespace kedge::bench
