#include "base/huge_pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/available_memory.h"

namespace kedge {
namespace {

TEST(HugePages, AreZeroedAlignedAndGoAway) {
  for (const size_t n_bytes : {size_t{1}, page_bytes(), kHugePageBytes - 1, kHugePageBytes, 3 * kHugePageBytes + 77}) {
    HugePages pages(n_bytes);
    ASSERT_EQ(pages.bytes().size(), n_bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(pages.bytes().data()) % kHugePageBytes, 0u);
    EXPECT_TRUE(std::ranges::all_of(pages.bytes(), [](std::byte b) { return b == std::byte{0}; }));
    std::ranges::fill(pages.bytes(), std::byte{7});
    HugePages moved = std::move(pages);
    EXPECT_TRUE(pages.bytes().empty());
    EXPECT_EQ(moved.bytes().back(), std::byte{7});
  }
}

TEST(HugePages, MoreThanThereIsIsNoMemory) { EXPECT_TRUE(HugePages(size_t{1} << 60).bytes().empty()); }

TEST(HugePages, AnyMemoryMayBeAdvised) {
  std::vector<std::byte> memory(3 * kHugePageBytes, std::byte{5});
  advise_huge_pages(memory);
  advise_huge_pages(std::span(memory).first(100));
  EXPECT_TRUE(std::ranges::all_of(memory, [](std::byte b) { return b == std::byte{5}; }));
}

TEST(HugePages, ContainersSmallAndLargeKeepWhatTheyHold) {
  std::vector<float, HugePageAllocator<float>> values;
  for (int i = 0; i < 1'000'000; ++i)
    values.push_back(static_cast<float>(i));
  const auto copy = values;
  values = {};
  EXPECT_EQ(copy.size(), 1'000'000u);
  EXPECT_EQ(copy[999'999], 999'999.0F);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(copy.data()) % kHugePageBytes, 0u) << "4 MB lie in huge pages";
}

TEST(AvailableMemory, IsTheSystemsEstimate) {
  EXPECT_EQ(parse_mem_available("MemTotal:  100 kB\nMemFree: 7 kB\nMemAvailable:   50 kB\n"), 51200);
  EXPECT_EQ(parse_mem_available("MemTotal:  100 kB\n"), std::nullopt);
  EXPECT_EQ(parse_mem_available("MemAvailable: lots\n"), std::nullopt);
  EXPECT_GT(available_memory_bytes().value_or(0), 0);
}

TEST(AvailableMemory, AContainersLimitCountsFilesAsFree) {
  EXPECT_EQ(parse_group_memory("1000\n", "700\n", "anon 400\nactive_file 100\ninactive_file 200\n"), 600);
  EXPECT_EQ(parse_group_memory("1000\n", "1200\n", "anon 1200\n"), 0) << "over the limit";
  EXPECT_EQ(parse_group_memory("max\n", "700\n", ""), std::nullopt) << "no limit";
  EXPECT_EQ(parse_group_memory("", "", ""), std::nullopt) << "no such group";
}

}  // namespace
}  // namespace kedge
