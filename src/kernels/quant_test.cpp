// Quantised rows: codes and scales by hand, the layout that kv_view.h states read independently, errors on random rows.
#include "kernels/quant.h"

#include <gtest/gtest.h>

#include <bit>

#include "kernels/half.h"
#include "kernels/head_for_tests.h"

namespace kedge {
namespace {

TEST(Rotation, OfOneChannelIsSpreadOverItsGroup) {
  std::vector<float> x(80, 0.0F);  // groups of 64 and 16
  x[0] = 8;
  x[64 + 1] = 4;
  rotate_groups(x.data(), 80);
  for (size_t i = 0; i < 64; ++i)
    EXPECT_FLOAT_EQ(x[i], 1);
  for (size_t i = 0; i < 16; ++i)
    EXPECT_FLOAT_EQ(x[64 + i], i % 2 == 0 ? 1.0F : -1.0F);
}

TEST(Rotation, KeepsScalarProductsAndUndoesItself) {
  for (const int d : {16, 48, 64, 80, 96, 128, 256}) {
    const std::vector<float> x = random_floats(static_cast<size_t>(d), 1);
    const std::vector<float> y = random_floats(static_cast<size_t>(d), 2);
    std::vector<float> a = x;
    std::vector<float> b = y;
    rotate_groups(a.data(), d);
    rotate_groups(b.data(), d);
    EXPECT_NEAR(std::inner_product(a.begin(), a.end(), b.begin(), 0.0),
                std::inner_product(x.begin(), x.end(), y.begin(), 0.0), 1e-4);
    rotate_groups(a.data(), d);
    EXPECT_LE(max_difference(a, x), 1e-6);
  }
}

TEST(Groups, OfEveryHeadDimension) {
  for (int d = 16; d <= 256; d += 16) {
    int n = 0;
    for (int begin = 0; begin < d; begin += group_size(d - begin))
      ++n;
    EXPECT_EQ(n_groups(d), n) << d;
  }
  EXPECT_EQ(n_groups(64), 1);
  EXPECT_EQ(n_groups(80), 2);
  EXPECT_EQ(n_groups(112), 3);
}

TEST(Q8, CodesAreRoundedMultiplesOfTheScale) {
  std::vector<float> x(16, 0.0F);
  x[0] = 127;
  x[1] = -64.4F;
  x[2] = 0.6F;
  int8_t codes[16];
  uint16_t scale = 0;
  encode_q8(x, codes, &scale);
  EXPECT_EQ(f16_to_f32(scale), 1);
  EXPECT_EQ(codes[0], 127);
  EXPECT_EQ(codes[1], -64);
  EXPECT_EQ(codes[2], 1);
  EXPECT_EQ(codes[3], 0);
}

TEST(Q4, MultiplesOfTheLevelsAreExactUnderEitherSign) {
  for (const float factor : {0.5F, -0.5F}) {
    std::vector<float> x;
    for (const int8_t level : kQ4Levels)
      x.push_back(factor * level);
    uint8_t codes[16];
    uint16_t scale = 0;
    encode_q4(x, codes, &scale);
    EXPECT_NEAR(f16_to_f32(scale), factor, 1e-3);
    for (size_t i = 0; i < 16; ++i)
      EXPECT_EQ(codes[i], i) << factor;
  }
}

TEST(Quantised, ZerosStayZeroAndNanStaysNan) {
  for (const RowType type : {RowType::q8, RowType::q4}) {
    std::vector<std::byte> block(block_layout(64, type).bytes, std::byte{0x5A});
    std::vector<float> x(64, 0.0F);
    std::vector<float> k(64, 1);
    std::vector<float> v(64, 1);
    const uint32_t id = 0;
    const KvHeadView rows = {
        .blocks = block.data(), .positions = nullptr, .block_ids = &id, .n_rows = 16, .head_dim = 64, .type = type};
    write_row(block.data(), 5, 64, type, x.data(), x.data());
    read_rows(rows, 5, 6, k.data(), v.data());
    EXPECT_EQ(k, x);
    EXPECT_EQ(v, x);
    x[7] = NAN;
    write_row(block.data(), 5, 64, type, x.data(), x.data());
    read_rows(rows, 5, 6, k.data(), v.data());
    EXPECT_TRUE(std::isnan(k[0]) && std::isnan(v[63]));
    x.assign(64, 65504);  // the largest value of the f16 tail, in every channel
    write_row(block.data(), 5, 64, type, x.data(), x.data());
    read_rows(rows, 5, 6, k.data(), v.data());
    EXPECT_NEAR(k[3], 65504, 400) << "finite, and the value";
    EXPECT_NEAR(v[3], 65504, 400);
  }
}

// Mean squared error over that of the row, of normal rows with one channel ten times as large.
TEST(Quantised, ErrorsAreThoseThatTheLevelsPromise) {
  for (const auto& [type, most] : {std::pair{RowType::q8, 6e-5}, {RowType::q4, 7.2e-3}}) {
    for (const int d : {64, 80, 128}) {
      std::vector<std::byte> block(block_layout(d, type).bytes);
      const uint32_t id = 0;
      const KvHeadView rows = {
          .blocks = block.data(), .positions = nullptr, .block_ids = &id, .n_rows = 16, .head_dim = d, .type = type};
      double error = 0;
      double size = 0;
      for (unsigned row = 0; row < 200; ++row) {
        std::vector<float> x = random_floats(static_cast<size_t>(d), row);
        x[row % 64] *= 10;
        std::vector<float> y(x.size());
        write_row(block.data(), static_cast<int>(row % 16), d, type, x.data(), x.data());
        read_rows(rows, static_cast<int>(row % 16), static_cast<int>(row % 16) + 1, nullptr, y.data());
        for (size_t i = 0; i < x.size(); ++i) {
          error += std::pow(static_cast<double>(x[i] - y[i]), 2);
          size += std::pow(static_cast<double>(x[i]), 2);
        }
      }
      EXPECT_LE(error / size, most) << d;
      EXPECT_GE(error / size, most / 4) << d << ": too good to be the type";
    }
  }
}

class Layout : public testing::TestWithParam<std::tuple<RowTypes, int>> {};

// Codes as the picture in kv_view.h has them, levels, scales and a Hadamard matrix written out.
std::vector<double> by_the_picture(const std::byte* block, RowTypes types, int slot, int d, bool keys) {
  const RowType type = keys ? types.k : types.v;
  const size_t k_codes = static_cast<size_t>(d) * 16 *
                         (types.k == RowType::q4   ? 1
                          : types.k == RowType::q8 ? 2
                                                   : 4) /
                         2;
  const size_t v_codes = static_cast<size_t>(d) * 16 *
                         (types.v == RowType::q4   ? 1
                          : types.v == RowType::q8 ? 2
                                                   : 4) /
                         2;
  const auto* codes = reinterpret_cast<const uint8_t*>(block) + (keys ? 0 : k_codes);
  size_t scales_at = k_codes + v_codes;
  if (!keys && is_quantised(types.k))
    scales_at += static_cast<size_t>(n_groups(d)) * 32;
  const auto* scales = reinterpret_cast<const uint16_t*>(block + scales_at);
  const auto uslot = static_cast<size_t>(slot);
  std::vector<double> coded;
  for (size_t i = 0; i < static_cast<size_t>(d); ++i) {
    int level = 0;
    if (type == RowType::q8) {
      level = keys ? codes[(i / 4) * 64 + uslot * 4 + i % 4] - 128
                   : static_cast<int8_t>(codes[(uslot / 4) * static_cast<size_t>(d) * 4 + i * 4 + uslot % 4]);
    } else {
      const uint8_t byte = keys ? codes[(i / 8) * 64 + uslot * 4 + i % 4]
                                : codes[(uslot / 8) * static_cast<size_t>(d) * 4 + i * 4 + uslot % 4];
      const bool high = keys ? i % 8 >= 4 : uslot % 8 >= 4;
      level = kQ4Levels[high ? byte >> 4 : byte & 15];
    }
    const size_t group = i < static_cast<size_t>(d / 64 * 64)
                             ? i / 64
                             : static_cast<size_t>(d / 64) + (d % 64 == 48 && i % 64 >= 32 ? 1U : 0U);
    coded.push_back(level * static_cast<double>(f16_to_f32(scales[group * 16 + uslot])));
  }
  std::vector<double> out(coded.size(), 0.0);
  for (int begin = 0; begin < d; begin += group_size(d - begin)) {
    const int n = group_size(d - begin);
    for (int i = 0; i < n; ++i) {
      for (int j = 0; j < n; ++j) {
        const double sign = std::popcount(static_cast<unsigned>(i & j)) % 2 == 0 ? 1 : -1;
        out[static_cast<size_t>(begin + i)] += sign / std::sqrt(n) * coded[static_cast<size_t>(begin + j)];
      }
    }
  }
  return out;
}

TEST_P(Layout, ReadsAsThePictureSaysBodyThenTail) {
  const auto [type, d] = GetParam();
  const TestHead head({.type = type, .head_dim = d, .n_rows = 75, .n_tail = 30, .seed = 3});
  const KvHeadView rows = head.view();
  const auto n = static_cast<size_t>(d);
  for (const auto& [begin, end] : {std::pair{0, 75}, {5, 6}, {15, 17}, {30, 30}, {16, 48}, {44, 47}, {60, 75}}) {
    std::vector<float> k(static_cast<size_t>(end - begin) * n, -1);
    std::vector<float> v(k.size(), -1);
    read_rows(rows, begin, end, k.data(), v.data());
    for (int row = begin; row < end; ++row) {
      const float* key = k.data() + static_cast<long>(row - begin) * d;
      const float* value = v.data() + static_cast<long>(row - begin) * d;
      if (row >= 45) {
        const auto* halves = reinterpret_cast<const uint16_t*>(rows.tail().k_block((row - 45) / 16));
        for (int i = 0; i < d; ++i) {
          ASSERT_EQ(key[i], f16_to_f32(halves[i * 16 + (row - 45) % 16]));
          ASSERT_EQ(value[i], f16_to_f32(halves[d * 16 + (row - 45) % 16 * d + i]));
        }
        continue;
      }
      const std::byte* block = rows.k_block(row / 16);
      if (is_quantised(type.k)) {
        const std::vector<double> want = by_the_picture(block, type, row % 16, d, true);
        for (size_t i = 0; i < n; ++i)
          ASSERT_NEAR(key[i], want[i], 1e-5) << row << " " << i;
      }
      if (is_quantised(type.v)) {
        const std::vector<double> want = by_the_picture(block, type, row % 16, d, false);
        for (size_t i = 0; i < n; ++i)
          ASSERT_NEAR(value[i], want[i], 1e-5) << row << " " << i;
      }
    }
    std::vector<float> k_alone(k.size(), -2);
    read_rows(rows, begin, end, k_alone.data(), nullptr);
    EXPECT_EQ(k_alone, k);
  }
}

TEST_P(Layout, CopyMovesOneRowAndNothingElse) {
  const auto [type, d] = GetParam();
  const TestHead head({.type = type, .head_dim = d, .n_rows = 32, .n_tail = 0, .seed = 4});
  const KvHeadView rows = head.view();
  for (int slot = 0; slot < kBlockRows; ++slot) {
    std::vector<std::byte> target(rows.block_bytes());
    std::memcpy(target.data(), rows.k_block(1), target.size());
    const auto before = target;
    const int source = (slot * 7 + 3) % kBlockRows;
    copy_row(target.data(), slot, rows.k_block(0), source, d, type);
    const uint32_t id = 0;
    const KvHeadView copy = {
        .blocks = target.data(), .positions = nullptr, .block_ids = &id, .n_rows = 16, .head_dim = d, .type = type};
    std::vector<float> got(static_cast<size_t>(2 * d));
    std::vector<float> want(got.size());
    read_rows(copy, slot, slot + 1, got.data(), got.data() + d);
    read_rows(rows, source, source + 1, want.data(), want.data() + d);
    EXPECT_EQ(got, want);
    copy_row(target.data(), slot, before.data(), slot, d, type);
    EXPECT_EQ(target, before) << "other slots changed";
  }
}

// The bytes of a row depend on nothing but the row: written beside other rows in another slot, it reads the same.
TEST_P(Layout, ARowIsItselfWhereverItLies) {
  const auto [type, d] = GetParam();
  const TestHead head({.type = type, .head_dim = d, .n_rows = 16, .n_tail = 0, .seed = 5});
  const std::vector<float> x = random_floats(static_cast<size_t>(2 * d), 6);
  std::vector<float> first;
  for (const int slot : {0, 3, 4, 9, 15}) {
    std::vector<std::byte> block(head.view().block_bytes(), std::byte{slot == 9 ? uint8_t{0xFF} : uint8_t{0}});
    if (slot != 9)
      std::memcpy(block.data(), head.view().k_block(0), block.size());
    write_row(block.data(), slot, d, type, x.data(), x.data() + d);
    const uint32_t id = 0;
    const KvHeadView rows = {
        .blocks = block.data(), .positions = nullptr, .block_ids = &id, .n_rows = 16, .head_dim = d, .type = type};
    std::vector<float> got(x.size());
    read_rows(rows, slot, slot + 1, got.data(), got.data() + d);
    if (first.empty())
      first = got;
    EXPECT_EQ(got, first) << slot;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Layout,
                         testing::Combine(testing::ValuesIn(all_types()),
                                          testing::Values(16, 48, 64, 80, 96, 128, 256)));

TEST(BlockLayout, BytesOfARow) {
  EXPECT_EQ(row_bytes(64, RowType::f16), 256U);
  EXPECT_EQ(row_bytes(64, RowType::q8), 132U);
  EXPECT_EQ(row_bytes(64, RowType::q4), 68U);
  EXPECT_EQ(row_bytes(64, RowTypes(RowType::q8, RowType::q4)), 100U);
  EXPECT_EQ(row_bytes(80, RowType::q4), 88U);
  for (int d = 16; d <= 256; d += 16) {
    for (const RowTypes type : all_types())
      EXPECT_EQ(block_layout(d, type).bytes % 64, 0U) << d;
  }
}

}  // namespace
}  // namespace kedge
