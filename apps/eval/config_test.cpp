#include "eval/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kedge::eval {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> names(const Result<std::vector<PolicyChoice>>& policies) {
  std::vector<std::string> out;
  for (const PolicyChoice& policy : *policies)
    out.push_back(policy.name);
  return out;
}

TEST(Policies, CommasPartPoliciesAndOptions) {
  const auto list = parse_policies("andpro:window=16,pool=7,snapkv,streaming/uniform recent;random");
  ASSERT_TRUE(list.ok()) << list.error().message;
  EXPECT_THAT(names(list), ElementsAre("andpro:window=16,pool=7", "snapkv", "streaming/uniform", "recent", "random"));
  EXPECT_THAT((*list)[0].text, HasSubstr("window=16"));
  const auto two = parse_policies("andpro,andpro:pool=7");
  ASSERT_TRUE(two.ok());
  EXPECT_EQ(two->size(), 2U);
}

TEST(Policies, TheSameTwiceIsOne) {
  const auto list = parse_policies("andpro,andpro");
  ASSERT_TRUE(list.ok());
  EXPECT_EQ(list->size(), 1U);
}

TEST(Policies, UnknownOnesAreNamed) {
  for (const char* text : {"", " , ", "snapvk", "andpro:windo=3"}) {
    const auto list = parse_policies(text);
    ASSERT_FALSE(list.ok()) << text;
    EXPECT_EQ(list.error().code, ErrorCode::usage);
  }
  EXPECT_THAT(parse_policies("snapvk").error().message, HasSubstr("snapkv"));
}

TEST(Budgets, KeepTheirWords) {
  const auto list = parse_budgets("50%,16MiB,200tok,50%");
  ASSERT_TRUE(list.ok());
  ASSERT_EQ(list->size(), 3U);
  EXPECT_EQ((*list)[0].text, "50%");
  EXPECT_EQ((*list)[1].kind, Budget::Kind::bytes);
  EXPECT_FALSE(parse_budgets("50").ok());
  EXPECT_FALSE(parse_budgets("").ok());
}

TEST(Lengths, AndDepths) {
  EXPECT_THAT(*parse_lengths("512,2k,512", "--lengths"), ElementsAre(512, 2048));
  for (const char* text : {"", "0", "-1", "x", "12x", "9999999999999"}) {
    const auto lengths = parse_lengths(text, "--lengths");
    ASSERT_FALSE(lengths.ok()) << text;
    EXPECT_THAT(lengths.error().message, HasSubstr("--lengths"));
  }
  EXPECT_THAT(*parse_depths("0%,0.5,100%"), ElementsAre(0.0, 0.5, 1.0));
  for (const char* text : {"", "101%", "-0.1", "half", "nan"})
    EXPECT_FALSE(parse_depths(text).ok()) << text;
}

TEST(Configs, DifferInWhatIsAskedNotInWhereItLies) {
  Config config;
  config.file = "a.txt";
  config.file_sha256 = "1";
  config.lengths = {512};
  const ModelInfo model{.path = "m.gguf", .name = "m"};
  const Json a = to_json(config, model);
  config.file = "b.txt";
  ModelInfo moved = model;
  moved.path = "elsewhere.gguf";
  EXPECT_EQ(first_difference(a, to_json(config, moved)), "");
  config.lengths = {512, 1024};
  EXPECT_EQ(first_difference(a, to_json(config, model)), "lengths [512] against [512,1024]");
  config.lengths = {512};
  config.file_sha256 = "2";
  EXPECT_THAT(first_difference(a, to_json(config, model)), HasSubstr("file_sha256"));
  config.file_sha256 = "1";
  config.protect = {{"domain", "code"}};
  const Json b = to_json(config, model);
  EXPECT_THAT(first_difference(a, b), HasSubstr("protect null against"));
  EXPECT_THAT(first_difference(b, a), HasSubstr("protect"));
  EXPECT_EQ(first_difference(b, b), "");
}

}  // namespace
}  // namespace kedge::eval
