#include "bench/lists.h"

#include <gtest/gtest.h>

namespace kedge::bench {
namespace {

using Ints = std::vector<int>;
using Words = std::vector<std::string>;

constexpr ListRange kRange{.flag = "--n-prompt", .least = 0, .most = 5000};

Ints ints(std::string_view text) {
  const Result<Ints> list = parse_ints(text, kRange);
  EXPECT_TRUE(list.ok()) << text << ": " << (list.ok() ? "" : list.error().message);
  return list.ok() ? *list : Ints();
}

template <typename T>
std::string error_of(const Result<T>& result) {
  if (result.ok())
    return "no error";
  EXPECT_EQ(result.error().code, ErrorCode::usage);
  EXPECT_EQ(result.error().message.find('\n'), std::string::npos);
  return result.error().message;
}

TEST(Lists, ValuesAndRanges) {
  EXPECT_EQ(ints("512"), Ints{512});
  EXPECT_EQ(ints("512,0,7"), (Ints{512, 0, 7}));
  EXPECT_EQ(ints("1-4"), (Ints{1, 2, 3, 4}));
  EXPECT_EQ(ints("512-2048+512"), (Ints{512, 1024, 1536, 2048}));
  EXPECT_EQ(ints("1-9*2"), (Ints{1, 2, 4, 8}));
  EXPECT_EQ(ints("10-15+4"), (Ints{10, 14}));
  EXPECT_EQ(ints("5-5"), Ints{5});
  EXPECT_EQ(ints("8,1-4*2,3000"), (Ints{8, 1, 2, 4, 3000}));
}

TEST(Lists, WhatIsNoListIsNamed) {
  for (const char* text : {"", "512,", ",512", "abc", "5x", "1-", "-4", "1-4+", "1-4*", "1-4/2", "1-4+2x", "5.5", " 5",
                           "1--4", "99999999999999999999"}) {
    const std::string error = error_of(parse_ints(text, kRange));
    EXPECT_NE(error.find("--n-prompt"), std::string::npos) << text << ": " << error;
    EXPECT_NE(error.find("first-last"), std::string::npos) << text << ": " << error;
  }
  EXPECT_NE(error_of(parse_ints("9-3", kRange)).find("'9-3' ends before it begins"), std::string::npos);
  EXPECT_NE(error_of(parse_ints("1-4+0", kRange)).find("never ends"), std::string::npos);
  EXPECT_NE(error_of(parse_ints("1-4*1", kRange)).find("never ends"), std::string::npos);
  EXPECT_NE(error_of(parse_ints("0-4*2", kRange)).find("never ends"), std::string::npos);
  EXPECT_NE(error_of(parse_ints("5001", kRange)).find("outside 0..5000"), std::string::npos);
  EXPECT_NE(error_of(parse_ints("0-4000", kRange)).find("more than 1000 values"), std::string::npos);
}

TEST(Lists, Pairs) {
  using Pairs = std::vector<std::pair<int, int>>;
  EXPECT_EQ(*parse_pairs("", kRange), Pairs());
  EXPECT_EQ(*parse_pairs("512,128", kRange), (Pairs{{512, 128}}));
  EXPECT_EQ(*parse_pairs("512,128;64,8", kRange), (Pairs{{512, 128}, {64, 8}}));
  EXPECT_NE(error_of(parse_pairs("512", kRange)).find("no pair"), std::string::npos);
  EXPECT_NE(error_of(parse_pairs("1,2,3", kRange)).find("no pair"), std::string::npos);
  EXPECT_NE(error_of(parse_pairs("1,x", kRange)).find("'x'"), std::string::npos);
}

TEST(Lists, CommasPartPoliciesAndOptionsGoOn) {
  EXPECT_EQ(*parse_policies("andpro"), Words{"andpro"});
  EXPECT_EQ(*parse_policies("andpro,snapkv"), (Words{"andpro", "snapkv"}));
  EXPECT_EQ(*parse_policies("andpro:window=32,pool=11/pooled:floor=0.1,streaming"),
            (Words{"andpro:window=32,pool=11/pooled:floor=0.1", "streaming"}));
  EXPECT_EQ(*parse_policies("snapkv:window=16,andpro:window=32"), (Words{"snapkv:window=16", "andpro:window=32"}));
}

TEST(Lists, BadPoliciesAreRefused) {
  EXPECT_NE(error_of(parse_policies("window=32,andpro")).find("no policy stands before it"), std::string::npos);
  EXPECT_NE(error_of(parse_policies("andpro,")).find("is empty"), std::string::npos);
  EXPECT_NE(error_of(parse_policies("andpro,snapkw")).find("snapkv"), std::string::npos) << "names the nearest";
  EXPECT_NE(error_of(parse_policies("andpro:windw=3")).find("window"), std::string::npos);
}

TEST(Lists, Budgets) {
  const Result<std::vector<Budget>> list = parse_budgets("none,10%,16MiB,full,2048tok");
  ASSERT_TRUE(list.ok());
  ASSERT_EQ(list->size(), 5U);
  EXPECT_EQ((*list)[0].kind, Budget::Kind::unlimited);
  EXPECT_EQ((*list)[1].kind, Budget::Kind::share);
  EXPECT_DOUBLE_EQ((*list)[1].value, 0.1);
  EXPECT_EQ((*list)[2].kind, Budget::Kind::bytes);
  EXPECT_DOUBLE_EQ((*list)[2].value, 16.0 * 1024 * 1024);
  EXPECT_EQ((*list)[3].kind, Budget::Kind::unlimited);
  EXPECT_EQ((*list)[4].kind, Budget::Kind::rows);
  EXPECT_NE(error_of(parse_budgets("10%,16")).find("16"), std::string::npos);
  EXPECT_NE(error_of(parse_budgets("10%,")), "no error");
}

TEST(Lists, Words) {
  const Words types = {"f16", "bf16"};
  EXPECT_EQ(*parse_words("bf16,f16", "-ctk", types), (Words{"bf16", "f16"}));
  EXPECT_EQ(error_of(parse_words("f16,q8_0", "-ctk", types)), "-ctk: 'q8_0' is not one of f16, bf16");
}

}  // namespace
}  // namespace kedge::bench
