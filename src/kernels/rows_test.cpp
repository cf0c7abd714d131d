#include <gtest/gtest.h>

#include <bit>

#include "kernels/half.h"
#include "kernels/head_for_tests.h"

namespace kedge {
namespace {

std::vector<std::byte> block_of(int head_dim) {
  return std::vector<std::byte>(static_cast<size_t>(head_dim) * kBlockRows * 4);
}
uint16_t stored_v0(const std::vector<std::byte>& block, int head_dim) {
  uint16_t half = 0;
  std::memcpy(&half, block.data() + static_cast<size_t>(head_dim) * kBlockRows * 2, 2);
  return half;
}

TEST(Half, EveryF16SurvivesTheRoundTrip) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const auto half = static_cast<uint16_t>(h);
    const bool special = (h & 0x7C00U) == 0x7C00U;
    const float wide = f16_to_f32(half);
    if (!special) {
      ASSERT_EQ(f32_to_f16(wide), half);
    } else if ((h & 0x3FFU) != 0) {
      ASSERT_TRUE(std::isnan(wide));
      ASSERT_EQ(f32_to_f16(wide), half | 0x200U);
    } else {
      ASSERT_TRUE(std::isinf(wide));
      ASSERT_EQ(f32_to_f16(wide), (h & 0x8000U) | 0x7BFFU) << "infinity saturates";
    }
  }
}

TEST(Half, RoundsToTheNearerNeighbourAndTiesToEven) {
  for (uint16_t h = 0; h < 0x7BFF; ++h) {
    const float low = f16_to_f32(h);
    const float high = f16_to_f32(static_cast<uint16_t>(h + 1));
    const float middle = (low + high) / 2;  // exact in f32
    ASSERT_EQ(f32_to_f16(middle), h % 2 == 0 ? h : h + 1);
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, 0.0F)), h);
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, INFINITY)), h + 1);
    ASSERT_EQ(f32_to_f16(-middle), (h % 2 == 0 ? h : h + 1) | 0x8000);
  }
}

TEST(Half, Bf16RoundsToNearestEvenAndSaturates) {
  for (uint32_t h = 0; h < 0x7F7F; ++h) {
    const float low = bf16_to_f32(static_cast<uint16_t>(h));
    const float middle = std::bit_cast<float>((h << 16) | 0x8000U);
    ASSERT_EQ(f32_to_bf16(low), h);
    ASSERT_EQ(f32_to_bf16(middle), h + (h & 1U));
    ASSERT_EQ(f32_to_bf16(std::bit_cast<float>((h << 16) | 0x7FFFU)), h);
    ASSERT_EQ(f32_to_bf16(std::bit_cast<float>((h << 16) | 0x8001U)), h + 1);
  }
  EXPECT_EQ(f32_to_bf16(INFINITY), 0x7F7F);
  EXPECT_EQ(f32_to_bf16(-3.4e38F), 0xFF7F);
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(NAN))));
}

TEST(Rows, VectorConversionGivesTheBitsOfTheScalarOne) {
  std::mt19937 random(7);
  std::vector<float> x(256);
  for (int round = 0; round < 400; ++round) {
    for (float& value : x) {
      do {
        value = std::bit_cast<float>(static_cast<uint32_t>(random()));
        if (round % 2 == 1)
          value = std::ldexp(std::fmod(value, 2.0F), static_cast<int>(random() % 45) - 27);
      } while (std::isnan(value));
    }
    if (round == 0)
      x = std::vector<float>(256, INFINITY), x[0] = 65519.9F, x[1] = -65520.0F, x[2] = NAN, x[3] = -0.0F;
    auto block = block_of(256);
    write_row(block.data(), 0, 256, RowType::f16, x.data(), x.data());
    const auto* k = reinterpret_cast<const uint16_t*>(block.data());
    const uint16_t* v = k + 256 * kBlockRows;
    for (int i = 0; i < 256; ++i) {
      const uint16_t expected = f32_to_f16(x[static_cast<size_t>(i)]);
      ASSERT_EQ(v[i], expected) << x[static_cast<size_t>(i)];
      ASSERT_EQ(k[i * kBlockRows], expected);
    }
  }
}

TEST(Rows, SaturatesInsteadOfStoringInfinity) {
  std::vector<float> x(64, 1e9F);
  for (const RowType type : {RowType::f16, RowType::bf16}) {
    auto block = block_of(64);
    write_row(block.data(), 0, 64, type, x.data(), x.data());
    const float stored = to_f32(stored_v0(block, 64), type);
    EXPECT_TRUE(std::isfinite(stored));
    EXPECT_FLOAT_EQ(stored, type == RowType::f16 ? 65504.0F : bf16_to_f32(f32_to_bf16(1e9F)));
  }
}

// read_rows, write_row and copy_row against the indices that kv_view.h states.
class RowsOf : public testing::TestWithParam<std::tuple<RowType, int>> {};

TEST_P(RowsOf, ReadGivesWhatWriteStoredForAnyRange) {
  const auto [type, d] = GetParam();
  const TestHead head({.type = type, .head_dim = d, .n_rows = 75, .seed = 3});
  const KvHeadView rows = head.view();
  for (const auto& [begin, end] : {std::pair{0, 75}, {5, 6}, {15, 17}, {30, 30}, {16, 48}}) {
    const auto n = static_cast<size_t>((end - begin) * d);
    std::vector<float> k(n, -1);
    std::vector<float> v(n, -1);
    read_rows(rows, begin, end, k.data(), v.data());
    for (int row = begin; row < end; ++row) {
      const auto* block = reinterpret_cast<const uint16_t*>(rows.k_block(row / kBlockRows));
      for (int i = 0; i < d; ++i) {
        const auto at = static_cast<size_t>((row - begin) * d + i);
        ASSERT_EQ(k[at], to_f32(block[k_index(row % kBlockRows, i, type)], type));
        ASSERT_EQ(v[at], to_f32(block[d * kBlockRows + v_index(row % kBlockRows, i, d, type)], type));
      }
    }
    std::vector<float> k_alone(n, -2);
    read_rows(rows, begin, end, k_alone.data(), nullptr);
    EXPECT_EQ(k_alone, k);
  }
}

INSTANTIATE_TEST_SUITE_P(All, RowsOf,
                         testing::Combine(testing::Values(RowType::f16, RowType::bf16),
                                          testing::Values(16, 64, 80, 96, 128, 256)));

}  // namespace
}  // namespace kedge
