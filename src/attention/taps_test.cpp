#include "attention/taps.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace kedge::attention {
namespace {

constexpr TapShape kShape{.n_layers = 1, .window = 4, .n_heads = 2, .head_dim = 2};

// Positions [begin, end) of both heads; q and y tell position and head.
void record(Taps& taps, int32_t begin, int32_t end) {
  for (int32_t p = begin; p < end; ++p) {
    for (int head = 0; head < 2; ++head) {
      const float q[] = {static_cast<float>(p), static_cast<float>(head)};
      const float y[] = {-static_cast<float>(p), 0.5F};
      taps.record({.layer = 0, .head = head, .position = p, .q = q, .y = y});
    }
  }
}

ObservedWindow gather(const Taps& taps, int32_t n_tokens) {
  return taps.gather({.layer = 0, .first_head = 0, .group = 2, .n_tokens = n_tokens});
}

TEST(Taps, WhatWasOverwrittenIsNotThereAnyMore) {
  Taps taps(kShape);
  record(taps, 0, 3);
  EXPECT_TRUE(taps.reach_back_to(1));
  record(taps, 3, 4);
  EXPECT_TRUE(taps.reach_back_to(3));  // 0..2 are still there
  record(taps, 4, 6);                  // over 0 and 1
  EXPECT_FALSE(taps.reach_back_to(5));
  EXPECT_TRUE(taps.reach_back_to(6));
  EXPECT_TRUE(Taps({.n_layers = 1, .window = 0, .n_heads = 2, .head_dim = 2}).reach_back_to(3));
}

TEST(Taps, TruncatedRowsAreForgotten) {
  Taps taps(kShape);
  record(taps, 0, 4);
  taps.truncate(2);
  EXPECT_EQ(gather(taps, 2).positions, (std::vector<int32_t>{0, 1}));
  EXPECT_TRUE(gather(taps, 4).positions.empty());
}

TEST(Taps, ContentsComeBackOrAreRefusedWithoutAChange) {
  Taps taps(kShape);
  record(taps, 0, 6);
  Taps other(kShape);
  EXPECT_EQ(other.load(taps.contents(), 6), "");
  EXPECT_EQ(gather(other, 6).positions, (std::vector<int32_t>{2, 3, 4, 5}));
  EXPECT_EQ(gather(other, 6).q, gather(taps, 6).q);
  EXPECT_EQ(gather(other, 6).y, gather(taps, 6).y);

  const auto refused = [&](auto&& change, int64_t n_tokens = 6) {
    std::vector<float> q(taps.contents().q.begin(), taps.contents().q.end());
    std::vector<float> y(taps.contents().y.begin(), taps.contents().y.end());
    std::vector<int32_t> positions(taps.contents().positions.begin(), taps.contents().positions.end());
    change(q, y, positions);
    const std::string why = other.load({.q = q, .y = y, .positions = positions}, n_tokens);
    EXPECT_EQ(gather(other, 6).q, gather(taps, 6).q);
    return why;
  };
  using Floats = std::vector<float>&;
  using Ints = std::vector<int32_t>&;
  const auto same = [](Floats, Floats, Ints) {};
  EXPECT_NE(refused(same, 5).find("found 5"), std::string::npos);
  EXPECT_NE(refused([](Floats, Floats, Ints p) { p[0] = 5; }).find("slot 0: found 5"), std::string::npos);
  EXPECT_NE(refused([](Floats, Floats, Ints p) { p[0] = -2; }).find("found -2"), std::string::npos);
  EXPECT_NE(refused([](Floats, Floats, Ints p) { p.pop_back(); }).find("7 values, allowed"), std::string::npos);
  EXPECT_NE(refused([](Floats q, Floats, Ints) { q[3] = NAN; }).find("finite"), std::string::npos);
  EXPECT_NE(refused([](Floats, Floats y, Ints) { y[0] = INFINITY; }).find("finite"), std::string::npos);
}

}  // namespace
}  // namespace kedge::attention
