#include <gtest/gtest.h>

#include "kernels/head_for_tests.h"

namespace kedge {
namespace {

// Of the sum of weights (times the largest value). Split bf16 queries carry 16 bits: logits are off by a few 1e-6.
constexpr double kTolerance = 4e-5;
constexpr double kToleranceF32 = 1e-5;
// Products of codes: queries and weights as integers of 15 and 16 bits, or of 8 (q4 where bytes are multiplied).
constexpr double kToleranceQ8 = 5e-4;
constexpr double kToleranceQ4 = 4e-2;

double tolerance(const AttentionKernels& kernels, RowTypes type) {
  const std::string name = kernels.name;
  if (is_quantised(type.k) && is_quantised(type.v)) {
    const bool words = name == "avx2" || name == "avx512";
    return type == RowType::q8 || words ? kToleranceQ8 : kToleranceQ4;
  }
  return type == RowType::bf16 && name == "avx512bf16" ? kTolerance : kToleranceF32;
}

std::vector<float> segment(const AttentionKernels& kernels, const KvHeadView& rows, int begin, int end,
                           const std::vector<float>& q, int group) {
  std::vector<float> partial(static_cast<size_t>(partial_floats(group, rows.head_dim)), NAN);
  const float scale = 1 / std::sqrt(static_cast<float>(rows.head_dim));
  kernels.attend_segment(rows, begin, end, q.data(), group, scale, partial.data());
  return partial;
}

// All segments of a head one after another.
std::vector<float> all_segments(const AttentionKernels& kernels, const KvHeadView& rows, const std::vector<float>& q,
                                int group) {
  std::vector<float> out;
  for (int i = 0; i < segments_of(rows); ++i) {
    const auto [begin, end] = segment_of(rows, i);
    const std::vector<float> part = segment(kernels, rows, begin, end, q, group);
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

void expect_partial_near(const std::vector<float>& got, const std::vector<float>& want, int group, int d,
                         double allowed) {
  for (int g = 0; g < group; ++g) {
    const auto m = static_cast<size_t>(g);
    const auto l = static_cast<size_t>(group + g);
    const auto o = static_cast<size_t>(2 * group + g * d);
    if (std::isinf(want[m])) {
      ASSERT_EQ(got[m], want[m]);
    } else {
      ASSERT_NEAR(got[m], want[m], allowed * std::max(1.0F, std::fabs(want[m])));
    }
    ASSERT_NEAR(got[l], want[l], allowed * std::max(1.0F, want[l]));
    const double largest_value = 5;
    ASSERT_LE(max_difference(std::span(got).subspan(o, static_cast<size_t>(d)),
                             std::span(want).subspan(o, static_cast<size_t>(d))),
              allowed * largest_value * std::max(1.0F, want[l]));
  }
}

void expect_head_near(const AttentionKernels& kernels, const KvHeadView& rows, const std::vector<float>& q, int group,
                      double allowed) {
  for (int i = 0; i < std::max(1, segments_of(rows)); ++i) {
    const auto [begin, end] = rows.n_rows == 0 ? RowRange{0, 0} : segment_of(rows, i);
    SCOPED_TRACE(testing::Message() << kernels.name << " rows " << begin << ".." << end << " of " << rows.n_rows
                                    << " tail " << rows.n_tail << " group " << group);
    expect_partial_near(segment(kernels, rows, begin, end, q, group),
                        segment(ref_kernels(), rows, begin, end, q, group), group, rows.head_dim, allowed);
    if (testing::Test::HasFatalFailure())
      return;
  }
}

class Decode : public testing::TestWithParam<std::tuple<RowTypes, int>> {};

TEST_P(Decode, AgreesWithTheOracleForEveryGroupAndTail) {
  const auto [type, d] = GetParam();
  for (int n_rows = 0; n_rows <= 132; ++n_rows) {
    const TestHead head({.type = type, .head_dim = d, .n_rows = n_rows, .seed = static_cast<unsigned>(n_rows)});
    const int group_step = n_rows <= 66 ? 1 : 3;  // every length meets every third group, short ones meet all
    for (int group = 1 + n_rows % group_step; group <= 8; group += group_step) {
      const std::vector<float> q = random_floats(static_cast<size_t>(group * d), 17);
      for (const AttentionKernels* kernels : fast_kernels()) {
        expect_head_near(*kernels, head.view(), q, group, tolerance(*kernels, type));
        if (HasFatalFailure())
          return;
      }
    }
  }
}

TEST_P(Decode, LargeGroupsAreSplit) {
  const auto [type, d] = GetParam();
  const TestHead head({.type = type, .head_dim = d, .n_rows = 77});
  for (int group = 9; group <= 16; ++group) {
    const std::vector<float> q = random_floats(static_cast<size_t>(group * d), 5);
    for (const AttentionKernels* kernels : fast_kernels())
      expect_head_near(*kernels, head.view(), q, group, tolerance(*kernels, type));
  }
}

TEST_P(Decode, PoisonBeyondTheLastRowChangesNothing) {
  const auto [type, d] = GetParam();
  for (const int n_rows : {1, 15, 17, 31, 33, 63, 65, 79, 511}) {
    std::vector<std::vector<float>> results;
    for (const AttentionKernels* kernels : fast_kernels()) {
      results.clear();
      for (const Poison poison : {Poison::zero, Poison::nan, Poison::huge}) {
        const TestHead head({.type = type, .head_dim = d, .n_rows = n_rows, .poison = poison});
        const std::vector<float> q = random_floats(static_cast<size_t>(3 * d), 8);
        results.push_back(all_segments(*kernels, head.view(), q, 3));
      }
      EXPECT_EQ(results[0], results[1]) << kernels->name << " NaN, rows " << n_rows;
      EXPECT_EQ(results[0], results[2]) << kernels->name << " huge, rows " << n_rows;
    }
  }
}

TEST_P(Decode, SegmentsMergedAreTheWhole) {
  const auto [type, d] = GetParam();
  const int n_rows = 2 * kSegmentRows + 139;
  const TestHead head({.type = type, .head_dim = d, .n_rows = n_rows, .position_gap = 4});
  for (const AttentionKernels* kernels : fast_kernels()) {
    const std::vector<float> q = random_floats(static_cast<size_t>(3 * d), 21);
    const size_t floats = static_cast<size_t>(partial_floats(3, d));
    std::vector<float> partials = all_segments(*kernels, head.view(), q, 3);
    EXPECT_EQ(partials, all_segments(*kernels, head.view(), q, 3)) << "not deterministic";
    const auto empty = segment(*kernels, head.view(), n_rows, n_rows, q, 3);
    partials.insert(partials.end(), empty.begin(), empty.end());
    std::vector<float> y(static_cast<size_t>(3 * d));
    kernels->merge_partials(partials.data(), static_cast<int>(partials.size() / floats), 3, d, y.data());
    const std::vector<float> whole = segment(ref_kernels(), head.view(), 0, n_rows, q, 3);
    std::vector<float> want(y.size());
    ref_kernels().merge_partials(whole.data(), 1, 3, d, want.data());
    EXPECT_LE(max_difference(y, want), std::max(kTolerance, tolerance(*kernels, type))) << kernels->name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Decode,
                         testing::Combine(testing::ValuesIn(all_types()), testing::Values(64, 80, 96, 128, 256)));

TEST(Merge, NothingGivesZeros) {
  for (const AttentionKernels* kernels : fast_kernels()) {
    const TestHead head({.n_rows = 0});
    const std::vector<float> q(64, 1);
    const std::vector<float> empty = segment(*kernels, head.view(), 0, 0, q, 1);
    EXPECT_EQ(empty[0], -INFINITY);
    EXPECT_EQ(empty[1], 0);
    std::vector<float> y(64, NAN);
    kernels->merge_partials(empty.data(), 1, 1, 64, y.data());
    EXPECT_EQ(y, std::vector<float>(64, 0.0F));
    y.assign(64, NAN);
    kernels->merge_partials(empty.data(), 0, 1, 64, y.data());
    EXPECT_EQ(y, std::vector<float>(64, 0.0F));
  }
}

TEST(Merge, VeryDifferentMaximaKeepTheLarger) {
  std::vector<float> partials(2 * 66, 1.0F);
  partials[0] = -1000;
  partials[66] = 500;
  for (int i = 0; i < 64; ++i)
    partials[static_cast<size_t>(68 + i)] = 3;
  std::vector<float> y(64);
  ref_kernels().merge_partials(partials.data(), 2, 1, 64, y.data());
  EXPECT_EQ(y, std::vector<float>(64, 3.0F));
}

TEST(Exp2, IsWithinTwoUlpOverTheWholeRange) {
  std::vector<float> x;
  for (double value = -126; value < 127.9; value += 0.00057)
    x.push_back(static_cast<float>(value));
  for (float value = -1e-3F; value < 1e-3F; value += 1e-6F)
    x.push_back(value);
  std::vector<float> y(x.size());
  for (const AttentionKernels* kernels : fast_kernels()) {
    kernels->exp2_floats(x.data(), y.data(), static_cast<int>(x.size()));
    double worst = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double exact = std::exp2(static_cast<double>(x[i]));
      worst = std::max(worst, std::fabs(static_cast<double>(y[i]) - exact) / exact);
    }
    EXPECT_LE(worst, 2 * 0x1p-24) << kernels->name;
  }
}

TEST(Exp2, VeryNegativeIsExactlyZeroAndZeroIsOne) {
  const std::vector<float> x = {-126.1F, -150.0F, -1e4F, -3.4e38F, -INFINITY, 0.0F, -0.0F, -1.0F};
  for (const AttentionKernels* kernels : fast_kernels()) {
    std::vector<float> y(x.size(), NAN);
    kernels->exp2_floats(x.data(), y.data(), static_cast<int>(x.size()));
    EXPECT_EQ(y, (std::vector<float>{0, 0, 0, 0, 0, 1, 1, 0.5F})) << kernels->name;
  }
}

TEST(Dispatch, NamesAndUnknownNames) {
  EXPECT_EQ(attention_kernels("avx1024"), nullptr);
  EXPECT_EQ(attention_kernels(nullptr), nullptr);
  ASSERT_NE(attention_kernels("ref"), nullptr);
  const std::string best = best_attention_kernels().name;
  EXPECT_EQ(attention_kernels(best.c_str()), &best_attention_kernels());
  EXPECT_EQ(best == "ref", fast_kernels().empty());
}

}  // namespace
}  // namespace kedge
