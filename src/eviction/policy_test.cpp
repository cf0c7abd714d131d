#include "eviction/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "eviction/registry.h"

namespace kedge::eviction {
namespace {

using testing::HasSubstr;
using Kind = OptionInfo::Kind;

std::string resolved(std::string_view text, const PolicyOverrides& overrides = {}) {
  auto policy = parse_policy(text, overrides);
  return policy ? policy->text : "ERROR " + policy.error().message;
}

std::string error_of(std::string_view text) {
  auto policy = parse_policy(text, {});
  if (policy)
    return "no error: " + policy->text;
  EXPECT_EQ(policy.error().code, ErrorCode::usage);
  EXPECT_EQ(policy.error().message.find('\n'), std::string::npos);
  return policy.error().message;
}

TEST(Registry, HoldsEveryFileOfTheFolders) {
  std::vector<std::string> names;
  for (const auto* methods : {&scorers(), &allocators(), &schedules()}) {
    for (const Method& method : *methods)
      names.push_back(method.info.name);
  }
  EXPECT_THAT(names, testing::IsSupersetOf({"andpro", "none", "random", "recent", "snapkv", "streaming", "pooled",
                                            "uniform", "after-prompt", "between-chunks", "every"}));
  for (const Method& method : scorers()) {
    EXPECT_FALSE(method.info.summary.empty()) << method.info.name;
    EXPECT_FALSE(method.info.source.empty()) << method.info.name;
    EXPECT_NE(method.make_scorer, nullptr) << method.info.name;
    for (const OptionInfo& option : method.info.options) {
      EXPECT_FALSE(option.help.empty()) << option.name;
      EXPECT_FALSE(range_text(option).empty()) << option.name;
    }
  }
}

TEST(Policy, SpellsOutDefaults) {
  const std::string kEvery = "every:n=64,share=0.06,high=1,low=1,stagger=on";
  EXPECT_EQ(resolved("andpro"),
            "andpro:window=32,pool=11,chunk=4,anchor=full,cold=100,refresh=64,queries=4,memory=0.5,refine=0,recent=50%,"
            "sinks=4/pooled:floor=0/" +
                kEvery);
  EXPECT_EQ(resolved("snapkv"), "snapkv:window=32,pool=5,pool_kind=avg,recent=32,sinks=0/uniform/" + kEvery);
  EXPECT_EQ(resolved("streaming"), "streaming:recent=0,sinks=4/uniform/" + kEvery);
  EXPECT_EQ(resolved("random"), "random:recent=0,sinks=0/uniform/" + kEvery);
  EXPECT_EQ(resolved("none"), "none:recent=0,sinks=0/uniform/after-prompt");
  EXPECT_FALSE(std::move(parse_policy("none", {})).value().evicts);
}

TEST(Policy, ReadsPartsInEitherOrderAndAliases) {
  EXPECT_EQ(resolved("andpro/every:n=16"), resolved("andpro/every:n=16/pooled"));
  EXPECT_THAT(resolved("andpro:floor=0.2"), HasSubstr("/pooled:floor=0.2/"));
  EXPECT_EQ(resolved("andpro:floor=0.2"), resolved("andpro/pooled:floor=0.2"));
  EXPECT_EQ(resolved("streaming_llm"), resolved("streaming"));
  EXPECT_EQ(resolved("no_press"), resolved("none"));
  EXPECT_THAT(resolved("recent/after_prompt"), HasSubstr("/after-prompt"));
}

TEST(Policy, ProtectionIsAnOptionThatWinsOverOverrides) {
  const PolicyOverrides overrides{.sinks = "9", .recent = "12.5%"};
  EXPECT_THAT(resolved("andpro", overrides), HasSubstr("recent=12.5%,sinks=9"));
  EXPECT_THAT(resolved("andpro:recent=64", overrides), HasSubstr("recent=64,sinks=9"));
  const auto policy = parse_policy("andpro:recent=50%,sinks=2", overrides);
  ASSERT_TRUE(policy.ok());
  EXPECT_TRUE(policy->recent.is_share);
  EXPECT_EQ(policy->recent.rows(101), 51);  // 50.5 rounds up
  EXPECT_EQ(policy->sinks.rows(101), 2);
  EXPECT_EQ(policy->cold_start_tokens, 100);
  EXPECT_FALSE(parse_policy("andpro", {.sinks = "", .recent = "-3"}).ok());
}

TEST(Policy, NamesTheNearest) {
  EXPECT_THAT(error_of("andpor"),
              HasSubstr("unknown scorer 'andpor', did you mean 'andpro'? (scorers: andpro, chunkkv"));
  EXPECT_THAT(error_of("streaming_lm"), HasSubstr("did you mean 'streaming'?"));
  EXPECT_THAT(error_of("andpro/poled"), HasSubstr("did you mean 'pooled'?"));
  EXPECT_THAT(error_of("andpro/pooled/evry"), HasSubstr("unknown schedule 'evry', did you mean 'every'?"));
  EXPECT_THAT(error_of("andpro:windw=3"),
              HasSubstr("unknown option 'windw' of 'andpro', did you mean 'window'? (options: window, pool"));
  EXPECT_THAT(error_of("andpro:anchor=ful"), HasSubstr("did you mean 'full'?"));
  EXPECT_THAT(error_of("andpro/uniform:floor=1"), HasSubstr("unknown option 'floor' of 'uniform', which has none"));
}

TEST(Policy, RefusesBadValuesNamingTheRange) {
  EXPECT_THAT(error_of("andpro:window=0"), HasSubstr("'window' of 'andpro': '0' is not allowed (1..1024)"));
  for (const char* text : {"andpro:window=1025",
                           "andpro:window=-1",
                           "andpro:window=3.5",
                           "andpro:window=abc",
                           "andpro:window=nan",
                           "andpro:window=inf",
                           "andpro:window=99999999999999999999",
                           "andpro:pool=4",
                           "andpro:pool=0",
                           "andpro:chunk=65",
                           "andpro:recent=101%",
                           "andpro:recent=-1%",
                           "andpro:recent=%",
                           "andpro:recent=1.5",
                           "andpro:sinks=-4",
                           "andpro/pooled:floor=1.1",
                           "andpro/every:n=0",
                           "andpro:floor=2",
                           "andpro:window=32x",
                           "andpro:window= 32"}) {
    EXPECT_THAT(error_of(text), HasSubstr("is not allowed")) << text;
  }
}

TEST(Policy, RefusesBrokenGrammar) {
  EXPECT_THAT(error_of(""), HasSubstr("names no scorer"));
  for (const char* text :
       {"/", ":", "andpro/", "andpro//every", "/pooled", "andpro:", "andpro:,", "andpro:window",
        "andpro:window=", "andpro:=3", "andpro:window=3,", "andpro:window=3,,pool=1", "andpro:window=3,window=3",
        "andpro/pooled/uniform", "andpro/every/every", "andpro/pooled/every/after-prompt", "andpro:floor=0.1/uniform",
        "andpro:floor=0.1/pooled:floor=0.1", "andpro/pooled:"}) {
    EXPECT_THAT(error_of(text), testing::Not(testing::StartsWith("no error"))) << text;
  }
  EXPECT_THAT(error_of("an\ndpro\x01"), HasSubstr("'an?dpro?'"));
  EXPECT_THAT(error_of(std::string(100000, 'x')), HasSubstr("longer than"));
}

std::string random_value(const OptionInfo& option, std::mt19937& random) {
  const auto uniform = [&](double lo, double hi) { return std::uniform_real_distribution<>(lo, hi)(random); };
  switch (option.kind) {
    case Kind::choice:
      return option.choices[random() % option.choices.size()];
    case Kind::flag:
      return random() % 2 == 0 ? "on" : "off";
    case Kind::real:
      return std::to_string(uniform(option.min, option.max));
    case Kind::percent_or_rows:
      if (random() % 2 == 0)
        return std::to_string(uniform(0, 100)) + "%";
      return std::to_string(random() % 1000);
    case Kind::text:
      return option.fallback;
    case Kind::integer:
      break;
  }
  const int value = static_cast<int>(uniform(option.min, option.max));
  return std::to_string(option.must_be_odd ? value / 2 * 2 + 1 : value);
}

std::string random_piece(const MethodInfo& method, std::mt19937& random, bool with_forwarded) {
  std::string options;
  for (const OptionInfo& option : method.options) {
    if (random() % 2 == 0 || (option.to_allocator && !with_forwarded))
      continue;
    options += (options.empty() ? "" : ",") + option.name + "=" + random_value(option, random);
  }
  return method.name + (options.empty() ? "" : ":" + options);
}

// Values that are in range each, but not together, such as a lower bound above the upper one.
bool refuses_together(const Method& schedule, const std::string& message) {
  return schedule.validate != nullptr && message.starts_with("option") &&
         message.find("'" + schedule.info.name + "'") != std::string::npos;
}

TEST(Policy, EveryCombinationParsesBackToItself) {
  std::mt19937 random(3);
  int n_refused = 0;
  int n_accepted = 0;
  for (const Method& scorer : scorers()) {
    for (const Method& allocator : allocators()) {
      for (const Method& schedule : schedules()) {
        for (int i = 0; i < 20; ++i) {
          const std::string text = random_piece(scorer.info, random, false) + "/" +
                                   random_piece(allocator.info, random, true) + "/" +
                                   random_piece(schedule.info, random, true);
          auto first = parse_policy(text, {.sinks = "3", .recent = "7%"});
          if (!first.ok() && refuses_together(schedule, first.error().message)) {
            ++n_refused;
            continue;
          }
          ASSERT_TRUE(first.ok()) << text << ": " << first.error().message;
          ++n_accepted;
          auto second = parse_policy(first->text, {.sinks = "1", .recent = "2"});
          ASSERT_TRUE(second.ok()) << first->text;
          EXPECT_EQ(first->text, second->text);
          EXPECT_EQ(first->recent.value, second->recent.value) << text;
          EXPECT_EQ(first->sinks.is_share, second->sinks.is_share) << text;
          EXPECT_EQ(first->scorer->needs().window, second->scorer->needs().window);
          EXPECT_EQ(first->schedule->info().every_n, second->schedule->info().every_n);
        }
      }
    }
  }
  EXPECT_GT(n_accepted, 2 * n_refused);
}

TEST(Policy, AnyBytesAreAnErrorOrAPolicy) {
  std::mt19937 random(11);
  const std::string alphabet = "andproefuwl:/=,0123456789%.-_";
  int n_refused = 0;
  for (int i = 0; i < 10000; ++i) {
    std::string text = i % 3 == 0 ? "andpro:window=32/pooled:floor=0.5/every:n=64" : "";
    const size_t length = random() % 40;
    for (size_t j = 0; j < length; ++j) {
      const char c = i % 2 == 0 ? static_cast<char>(random()) : alphabet[random() % alphabet.size()];
      text.insert(text.begin() + static_cast<long>(random() % (text.size() + 1)), c);
    }
    auto policy = parse_policy(text, {});
    if (policy) {
      EXPECT_EQ(resolved(policy->text), policy->text);
    } else {
      ++n_refused;
      for (const char c : policy.error().message)
        ASSERT_TRUE(c >= ' ' && c <= '~');
    }
  }
  EXPECT_GT(n_refused, 6000);
}

TEST(Schedules, EveryImpliesTheOthers) {
  const auto info = [](const char* text) { return std::move(parse_policy(text, {})).value().schedule->info(); };
  EXPECT_FALSE(info("recent/after-prompt").between_chunks);
  EXPECT_EQ(info("recent/after-prompt").every_n, 0);
  EXPECT_TRUE(info("recent/between-chunks").between_chunks);
  EXPECT_TRUE(info("recent/every:n=7").after_prompt && info("recent/every:n=7").between_chunks);
  EXPECT_EQ(info("recent/every:n=7").every_n, 7);
}

}  // namespace
}  // namespace kedge::eviction
