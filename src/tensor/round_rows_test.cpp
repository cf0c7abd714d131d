// Rounded rows times dequantised weights are what ggml's integer dot product gives.
#include "tensor/round_rows.h"

#include <ggml-cpu.h>
#include <ggml.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace kedge::tensor {
namespace {

constexpr int64_t kColumns = 1024;

std::vector<float> random_row(uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> row(kColumns);
  for (float& x : row)
    x = normal(rng);
  return row;
}

struct Products {
  double integer = 0;    // ggml's own
  double rounded = 0;    // dequantised weight, rounded activation
  double unrounded = 0;  // dequantised weight, activation as it is
};

Products products(ggml_type type, uint32_t seed) {
  const std::vector<float> w = random_row(seed);
  const std::vector<float> x = random_row(seed + 1000);
  std::vector<unsigned char> packed_w(ggml_row_size(type, kColumns));
  ggml_quantize_chunk(type, w.data(), packed_w.data(), 0, 1, kColumns, nullptr);
  const ggml_type_traits_cpu* traits = ggml_get_type_traits_cpu(type);
  std::vector<unsigned char> packed_x(ggml_row_size(traits->vec_dot_type, kColumns));
  ggml_get_type_traits_cpu(traits->vec_dot_type)->from_float(x.data(), packed_x.data(), kColumns);
  float integer = 0;
  traits->vec_dot(kColumns, &integer, 0, packed_w.data(), 0, packed_x.data(), 0, 1);
  std::vector<float> back(kColumns);
  std::vector<float> seen(kColumns);
  ggml_get_type_traits(type)->to_float(packed_w.data(), back.data(), kColumns);
  round_row(activation_type(type), x.data(), seen.data(), kColumns);
  Products out{.integer = integer};
  for (int64_t i = 0; i < kColumns; ++i) {
    out.rounded += static_cast<double>(back[i]) * seen[i];
    out.unrounded += static_cast<double>(back[i]) * x[i];
  }
  return out;
}

TEST(RoundRows, GivesTheIntegerDotProduct) {
  ggml_cpu_init();
  for (const ggml_type type : {GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q8_0, GGML_TYPE_Q4_K, GGML_TYPE_Q6_K}) {
    double rounded = 0;
    double unrounded = 0;
    for (uint32_t seed = 0; seed < 50; ++seed) {
      const Products p = products(type, seed);
      rounded += std::pow(p.rounded - p.integer, 2);
      unrounded += std::pow(p.unrounded - p.integer, 2);
    }
    EXPECT_LT(rounded, unrounded / 25) << ggml_type_name(type) << ": an error five times smaller";
  }
}

TEST(RoundRows, RoundsOnlyQuantisedWeightsActivations) {
  EXPECT_EQ(activation_type(GGML_TYPE_F32), -1);
  EXPECT_EQ(activation_type(GGML_TYPE_F16), -1);
  EXPECT_EQ(activation_type(GGML_TYPE_Q4_1), GGML_TYPE_Q8_1);
  EXPECT_EQ(activation_type(GGML_TYPE_Q8_0), GGML_TYPE_Q8_0);
  EXPECT_EQ(activation_type(GGML_TYPE_Q6_K), GGML_TYPE_Q8_K);
}

TEST(RoundRows, KeepsEachValueToHalfAStep) {
  const std::vector<float> x = random_row(7);
  std::vector<float> seen(kColumns);
  round_row(GGML_TYPE_Q8_0, x.data(), seen.data(), kColumns);
  for (int64_t block = 0; block < kColumns; block += 32) {
    float most = 0;
    for (int64_t i = block; i < block + 32; ++i)
      most = std::max(most, std::fabs(x[i]));
    for (int64_t i = block; i < block + 32; ++i)
      EXPECT_NEAR(seen[i], x[i], most / 127 * 0.56F);
  }
}

}  // namespace
}  // namespace kedge::tensor
