#include "kv/block_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace kedge::kv {
namespace {

constexpr size_t kPayload = 4096;

TEST(BlockPool, HandsOutEveryBlockOnceAndTakesItBack) {
  for (const int64_t n : {1, 15, 16, 63, 64, 65, 1000, 64 * 64 + 3}) {
    auto pool = BlockPool::create(n, 1024);
    ASSERT_TRUE(pool.ok());
    std::vector<uint32_t> taken;
    for (int64_t i = 0; i < n; ++i)
      taken.push_back(pool->take(kNoBlock, 1, true));
    std::sort(taken.begin(), taken.end());
    EXPECT_EQ(std::adjacent_find(taken.begin(), taken.end()), taken.end());
    EXPECT_EQ(int64_t{taken.back()}, n - 1);
    EXPECT_EQ(pool->n_free(), 0);
    EXPECT_EQ(pool->check_invariants(), "");
    for (const uint32_t block : taken)
      pool->release(block);
    EXPECT_EQ(pool->n_free(), n);
    EXPECT_EQ(pool->check_invariants(), "");
  }
}

TEST(BlockPool, HeadsGetExtentsAndTheirNeighbours) {
  auto pool = BlockPool::create(256, kPayload);
  ASSERT_TRUE(pool.ok());
  const uint32_t a = pool->take(kNoBlock, 1, true);
  const uint32_t b = pool->take(kNoBlock, 1, true);
  const uint32_t c = pool->take(kNoBlock, 64, true);
  EXPECT_EQ(a % 16, 0U);
  EXPECT_EQ(b, a + 16);
  EXPECT_EQ(c % 64, 0U) << "a long head gets an extent of 64";
  EXPECT_NE(c / 64, a / 64);
  EXPECT_EQ(pool->take(a, 2, true), a + 1);
  for (uint32_t last = a + 1; last + 1 < b; ++last)
    EXPECT_EQ(pool->take(last, 2, true), last + 1);
  EXPECT_EQ(pool->take(b - 1, 17, true), b + 16) << "the neighbour is taken: the next empty extent";
}

TEST(BlockPool, SharedBlocksStayUntilTheLastOwnerGoes) {
  auto pool = BlockPool::create(2, kPayload);
  ASSERT_TRUE(pool.ok());
  const uint32_t block = pool->take(kNoBlock, 1, true);
  pool->share(block);
  EXPECT_EQ(pool->refs(block), 2U);
  pool->release(block);
  EXPECT_EQ(pool->n_free(), 1);
  pool->release(block);
  EXPECT_EQ(pool->n_free(), 2);
}

TEST(BlockPoolDeathTest, ChecksItsCaller) {
  auto pool = BlockPool::create(1, kPayload);
  ASSERT_TRUE(pool.ok());
  const uint32_t block = pool->take(kNoBlock, 1, true);
  EXPECT_DEATH((void)pool->take(kNoBlock, 1, true), "a free block");
  pool->release(block);
  EXPECT_DEATH(pool->release(block), "release a block in use");
  EXPECT_DEATH(pool->share(block), "share a block in use");
}

// Payload sizes that are a page, less than one, and none of its multiples: blocks at the ragged ends keep their memory.
TEST(BlockPool, LargeFreedRunsAreGivenBackAndReadAsZero) {
  for (const size_t payload : {size_t{4096}, size_t{1024}, size_t{5120}}) {
    const auto n = static_cast<int64_t>(2 * static_cast<size_t>(BlockPool::kTrimBytes) / payload + 200);
    auto pool = BlockPool::create(n, payload);
    ASSERT_TRUE(pool.ok());
    std::vector<uint32_t> taken;
    for (int64_t i = 0; i < n; ++i) {
      taken.push_back(pool->take(taken.empty() ? kNoBlock : taken.back(), n, true));
      std::fill_n(pool->payload(taken.back()), payload, std::byte{0xEE});
    }
    const uint32_t kept = taken.back();
    taken.pop_back();
    for (const uint32_t block : taken)
      pool->release(block);
    pool->trim();
    EXPECT_GT(pool->n_trimmed(), n / 2);
    EXPECT_EQ(pool->payload(kept)[0], std::byte{0xEE});
    EXPECT_EQ(pool->payload(kept)[payload - 1], std::byte{0xEE});
    for (size_t i = 0; i < taken.size(); ++i) {
      const std::byte* block = pool->payload(pool->take(kNoBlock, 1, true));
      ASSERT_TRUE(std::all_of(block, block + payload, [](std::byte b) { return b == std::byte{0}; })) << payload;
    }
  }
}

TEST(BlockPool, SmallFreesKeepTheirMemory) {
  auto pool = BlockPool::create(1024, kPayload);
  ASSERT_TRUE(pool.ok());
  std::vector<uint32_t> taken;
  for (int i = 0; i < 256; ++i)
    taken.push_back(pool->take(kNoBlock, 1, true));
  for (const uint32_t block : taken)
    pool->release(block);
  pool->trim();
  EXPECT_EQ(pool->n_trimmed(), 0) << "1 MiB is not worth a system call";
}

}  // namespace
}  // namespace kedge::kv
