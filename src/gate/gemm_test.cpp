// The small matrix product against three loops, bit for bit.
#include "gate/gemm.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace kedge::gate {
namespace {

void three_loops(const Gemm& p) {
  for (int i = 0; i < p.m; ++i) {
    for (int j = 0; j < p.n; ++j) {
      float sum = p.add ? p.c[i * p.c_row + j] : 0.0F;
      for (int l = 0; l < p.k; ++l)
        sum += p.a[i * p.a_row + l * p.a_column] * p.b[l * p.b_row + j];
      p.c[i * p.c_row + j] = sum;
    }
  }
}

struct GemmCase {
  int m, n, k;
  bool transposed;  // A lies as [k][m]
  bool add;
};

class Gemms : public testing::TestWithParam<GemmTarget> {};

TEST_P(Gemms, AreThreeLoopsAtAnyShape) {
  if (!gemm_supported(GetParam()))
    GTEST_SKIP() << "not on this processor";
  const GemmCase cases[] = {{1, 1, 1, false, false},   {6, 16, 8, false, false},  {7, 17, 5, false, true},
                            {13, 48, 33, true, true},  {5, 3, 96, false, true},   {48, 31, 256, true, false},
                            {2, 16, 576, false, true}, {11, 32, 1, true, false},  {3, 15, 0, false, false},
                            {6, 16, 0, true, true},    {100, 96, 64, true, true}, {6, 64, 7, false, false}};
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 1);
  for (const GemmCase& one : cases) {
    const int gap = 3;  // between the rows of each matrix
    const int a_row = (one.transposed ? one.m : one.k) + gap;
    const auto draw = [&](int n) {
      std::vector<float> out(static_cast<size_t>(n));
      for (float& value : out)
        value = normal(random);
      return out;
    };
    const std::vector<float> a = draw(a_row * ((one.transposed ? one.k : one.m) + 1));
    const std::vector<float> b = draw((one.n + gap) * (one.k + 1));
    std::vector<float> expected = draw((one.n + gap) * one.m);
    std::vector<float> found = expected;
    Gemm product{.m = one.m,
                 .n = one.n,
                 .k = one.k,
                 .a = a.data(),
                 .a_row = one.transposed ? 1 : a_row,
                 .a_column = one.transposed ? a_row : 1,
                 .b = b.data(),
                 .b_row = one.n + gap,
                 .c = expected.data(),
                 .c_row = one.n + gap,
                 .add = one.add};
    three_loops(product);
    product.c = found.data();
    gemm_on(GetParam(), product);
    EXPECT_EQ(found, expected) << one.m << " x " << one.n << " x " << one.k << ": the gaps too stay as they were";
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Gemms, testing::Values(GemmTarget::baseline, GemmTarget::avx2, GemmTarget::avx512));

TEST(Gemm, ByHand) {
  const float a[] = {1, 2, 3, 4};
  const float b[] = {10, 20, 30, 40};
  float c[] = {1, 1, 1, 1};
  gemm({.m = 2, .n = 2, .k = 2, .a = a, .a_row = 2, .b = b, .b_row = 2, .c = c, .c_row = 2, .add = true});
  EXPECT_EQ(std::vector<float>(c, c + 4), (std::vector<float>{71, 101, 151, 221}));
  gemm({.m = 2, .n = 2, .k = 2, .a = a, .a_row = 1, .a_column = 2, .b = b, .b_row = 2, .c = c, .c_row = 2});
  EXPECT_EQ(std::vector<float>(c, c + 4), (std::vector<float>{100, 140, 140, 200}));
}

}  // namespace
}  // namespace kedge::gate
