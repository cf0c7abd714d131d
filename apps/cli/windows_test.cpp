#include "windows.h"

#include <gtest/gtest.h>

#include <set>

namespace kedge::cli {
namespace {

TEST(SampleOffsets, DistinctInRangeAndRepeatable) {
  const WindowRequest request{.n_tokens = 1200, .length = 1152, .samples = 49, .seed = 7};
  const auto offsets = sample_offsets(request);
  ASSERT_TRUE(offsets.ok()) << offsets.error().message;
  const std::set<int64_t> seen(offsets->begin(), offsets->end());
  EXPECT_EQ(seen.size(), 49U);  // every place there is
  EXPECT_EQ(*seen.begin(), 0);
  EXPECT_EQ(*seen.rbegin(), 48);
  EXPECT_EQ(*sample_offsets(request), *offsets);
}

TEST(SampleOffsets, FewerSamplesAreAPrefix) {
  const auto many = sample_offsets({.n_tokens = 75954, .length = 1152, .samples = 12, .seed = 3});
  const auto few = sample_offsets({.n_tokens = 75954, .length = 1152, .samples = 4, .seed = 3});
  ASSERT_TRUE(many.ok() && few.ok());
  EXPECT_EQ(std::vector<int64_t>(many->begin(), many->begin() + 4), *few);
  EXPECT_NE(*sample_offsets({.n_tokens = 75954, .length = 1152, .samples = 4, .seed = 4}), *few);
}

TEST(SampleOffsets, TheDocumentedGenerator) {
  // SplitMix64 with seed 0 begins with 0xE220A8397B1DCDAF; times 1000 / 2^64 is 883.
  const auto offsets = sample_offsets({.n_tokens = 1009, .length = 10, .samples = 1, .seed = 0});
  ASSERT_TRUE(offsets.ok());
  EXPECT_EQ(offsets->front(), 883);
}

TEST(SampleOffsets, RoughlyUniform) {
  const auto offsets = sample_offsets({.n_tokens = 100009, .length = 10, .samples = 4000, .seed = 1});
  ASSERT_TRUE(offsets.ok());
  int quarter[4] = {};
  for (const int64_t offset : *offsets)
    ++quarter[offset / 25000];
  for (const int count : quarter)
    EXPECT_NEAR(count, 1000, 120);  // more than four standard deviations
}

TEST(SampleOffsets, TooShortATextIsNamed) {
  const auto offsets = sample_offsets({.n_tokens = 100, .length = 1152, .samples = 1, .seed = 1});
  ASSERT_FALSE(offsets.ok());
  EXPECT_EQ(offsets.error().code, ErrorCode::usage);
  EXPECT_NE(offsets.error().message.find("100 tokens"), std::string::npos);
  EXPECT_FALSE(sample_offsets({.n_tokens = 1153, .length = 1152, .samples = 3, .seed = 1}).ok());
}

TEST(ParseOffsets, ListsAndMistakes) {
  EXPECT_EQ(*parse_offsets("17611,0,48"), (std::vector<int64_t>{17611, 0, 48}));
  for (const char* list : {"", "a", "1,", ",1", "1;2", "1, 2", "-1", "99999999999999999999"}) {
    const auto offsets = parse_offsets(list);
    ASSERT_FALSE(offsets.ok()) << list;
    EXPECT_EQ(offsets.error().code, ErrorCode::usage) << list;
  }
}

TEST(FitOffsets, MovesAnOverhangingWindowBack) {
  EXPECT_EQ(*fit_offsets({0, 48, 49, 1199}, 1200, 1152), (std::vector<int64_t>{0, 48, 48, 48}));
  EXPECT_FALSE(fit_offsets({1200}, 1200, 1152).ok());
  EXPECT_FALSE(fit_offsets({0}, 1000, 1152).ok());
}

}  // namespace
}  // namespace kedge::cli
