#include "eviction/gate_mode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "eviction/synthetic_heads.h"

namespace kedge::eviction {
namespace {

GateMode mode(const std::string& text) {
  Result<GateMode> parsed = parse_gate_mode(text);
  EXPECT_TRUE(parsed.ok()) << text;
  return parsed.ok() ? *parsed : GateMode();
}

std::string message(const std::string& text) {
  const Result<GateMode> parsed = parse_gate_mode(text);
  EXPECT_FALSE(parsed.ok()) << text;
  return parsed.ok() ? "" : parsed.error().message;
}

TEST(GateMode, IsReadAndSpelledOut) {
  EXPECT_FALSE(mode("").discards());
  EXPECT_FALSE(mode("budget").discards());
  const GateMode fixed = mode("threshold:at=0.3,window=64");
  EXPECT_TRUE(fixed.discards());
  EXPECT_EQ(fixed.low, 0.3);
  EXPECT_EQ(fixed.high, 0.3);
  EXPECT_EQ(fixed.window, 64);
  EXPECT_EQ(mode(fixed.text).text, fixed.text);
  const GateMode adaptive = mode("adaptive");
  EXPECT_EQ(adaptive.text, "adaptive:low=0.2,high=0.8,gap=0.05,window=128,sinks=4,early=0,early-weight=2,layers=-");
}

TEST(GateMode, MistakesAreNamed) {
  EXPECT_THAT(message("adaptiv"), testing::AllOf(testing::HasSubstr("adaptiv"), testing::HasSubstr("'adaptive'"),
                                                 testing::HasSubstr("budget, threshold, adaptive")));
  EXPECT_THAT(message("threshold:at=2"), testing::AllOf(testing::HasSubstr("'at'"), testing::HasSubstr("0..1")));
  EXPECT_THAT(message("threshold:high=1"), testing::HasSubstr("high"));
  EXPECT_THAT(message("adaptive:low=0.9"), testing::HasSubstr("above 'high'"));
  EXPECT_THAT(message("budget:at=1"), testing::HasSubstr("none"));
  EXPECT_THAT(message("threshold:"), testing::HasSubstr("no options"));
  EXPECT_THAT(message("threshold:layers=3"), testing::HasSubstr("FIRST[-LAST]:WEIGHT"));
}

// The sign: less free memory, a higher threshold, more rows below it.
TEST(GateMode, FullerMemoryDiscardsMore) {
  const GateMode adaptive = mode("adaptive:gap=0");
  EXPECT_DOUBLE_EQ(wanted_threshold(adaptive, 1), 0.2);
  EXPECT_DOUBLE_EQ(wanted_threshold(adaptive, 0.5), 0.8 - 0.6 * 0.5);
  EXPECT_DOUBLE_EQ(wanted_threshold(adaptive, 0), 0.8);
  EXPECT_DOUBLE_EQ(wanted_threshold(adaptive, -3), 0.8) << "more is asked for than there is";
  EXPECT_DOUBLE_EQ(wanted_threshold(adaptive, 2), 0.2);
  const SyntheticHead head({.n_rows = 500, .seed = 3});
  const HeadInput in = head.input();
  std::vector<float> logit;
  for (int32_t row = 0; row < in.rows.n_rows; ++row)
    logit.push_back(3 * std::sin(0.7F * static_cast<float>(row)));
  const std::vector<uint8_t> nothing(logit.size(), 0);
  size_t last = logit.size() + 1;
  for (const double free : {1.0, 0.8, 0.6, 0.4, 0.2, 0.0}) {
    const double threshold = next_threshold(adaptive, -1, free);
    const size_t kept =
        open_rows(adaptive, threshold, {.rows = in.rows, .logit = logit, .is_protected = nothing}).size();
    EXPECT_LT(kept, last) << free;
    last = kept;
  }
}

// What is free after a text agrees with the threshold that it asks for, by the curve of what thresholds keep.
TEST(GateMode, AProspectAgreesWithItsThreshold) {
  const GateMode adaptive = mode("adaptive:gap=0");
  const std::vector<gate::KeepThreshold> curve = {{0.1F, 0.9F}, {0.5F, 0.5F}, {0.9F, 0.1F}};
  const auto threshold = [&](double used, double coming, std::span<const gate::KeepThreshold> of) {
    return wanted_threshold(adaptive, free_when_read(adaptive, {.used = used, .coming = coming, .curve = of}));
  };
  double last = 0;
  for (const double coming : {0.1, 0.5, 1.1, 2.0, 4.0, 40.0}) {
    const double at = threshold(0.05, coming, curve);
    EXPECT_GT(at, last) << coming;
    EXPECT_LE(at, 0.8);
    // keep(t) is 1 - t on this curve, and where there is none
    EXPECT_NEAR(at, std::min(0.8, 0.2 + 0.6 * (0.05 + coming * (1 - at))), coming > 3 ? 0.05 : 1e-6) << coming;
    EXPECT_NEAR(threshold(0.05, coming, {}), at, 1e-6) << coming;
    last = at;
  }
  EXPECT_DOUBLE_EQ(threshold(0.5, 0, curve), 0.5) << "nothing comes: what is free is free";
  EXPECT_GT(threshold(0.05, 1.1, std::vector<gate::KeepThreshold>{{0.5F, 0.8F}}), threshold(0.05, 1.1, curve))
      << "a gate that opens wider fills more";
}

TEST(GateMode, TheThresholdWaitsForTheGap) {
  const GateMode adaptive = mode("adaptive:gap=0.1");
  EXPECT_DOUBLE_EQ(next_threshold(adaptive, -1, 0.5), 0.5);
  EXPECT_DOUBLE_EQ(next_threshold(adaptive, 0.5, 0.4), 0.5) << "0.56 is within the gap";
  EXPECT_DOUBLE_EQ(next_threshold(adaptive, 0.5, 0.3), 0.62);
  EXPECT_DOUBLE_EQ(next_threshold(adaptive, 0.62, 0.45), 0.62) << "and back";
  EXPECT_DOUBLE_EQ(next_threshold(mode("threshold:at=0.4"), 0.4, 0.0), 0.4) << "a fixed one does not move";
}

TEST(GateMode, RowsAreThoseOfThePlainRule) {
  const SyntheticHead head({.n_rows = 300, .seed = 5});
  const HeadInput in = head.input();
  const GateMode weighted = mode("threshold:at=0.6,early=100,early-weight=3,layers=2-4:2");
  std::vector<float> logit;
  std::vector<uint8_t> flags;
  for (int32_t row = 0; row < in.rows.n_rows; ++row) {
    logit.push_back(4 * std::cos(1.3F * static_cast<float>(row)));
    flags.push_back(row % 17 == 0 ? 1 : 0);
  }
  for (const int layer : {1, 3}) {
    std::vector<int32_t> expected;
    for (int32_t row = 0; row < in.rows.n_rows; ++row) {
      const double p = 1 / (1 + std::exp(-static_cast<double>(logit[static_cast<size_t>(row)])));
      const double weight = (in.rows.position(row) < 100 ? 3 : 1) * (layer == 3 ? 2 : 1);
      if (flags[static_cast<size_t>(row)] != 0 || p >= 0.6 / weight)
        expected.push_back(row);
    }
    EXPECT_EQ(open_rows(weighted, 0.6, {.rows = in.rows, .logit = logit, .is_protected = flags, .layer = layer}),
              expected)
        << layer;
  }
}

TEST(GateMode, AThresholdOfZeroKeepsAllAndAHeadKeepsARow) {
  const SyntheticHead head({.n_rows = 50, .seed = 1});
  const HeadInput in = head.input();
  const std::vector<float> logit(50, -40.0F);
  const std::vector<uint8_t> nothing(50, 0);
  const GatedRows rows{.rows = in.rows, .logit = logit, .is_protected = nothing};
  EXPECT_EQ(open_rows(mode("threshold:at=0"), 0, rows).size(), 50U);
  EXPECT_THAT(open_rows(mode("threshold:at=1"), 1, rows), testing::ElementsAre(49));
}

}  // namespace
}  // namespace kedge::eviction
