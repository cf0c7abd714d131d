#include "base/read_wall.h"

#include <gtest/gtest.h>

namespace kedge {
namespace {

TEST(ReadWall, ReadsWithAnyNumberOfThreads) {
  const ReadBuffer buffer(8 << 20);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(buffer.n_bytes(), size_t{8} << 20);
  EXPECT_EQ(buffer.data()[buffer.n_bytes() - 1], std::byte{1}) << "touched to its end";
  for (const int n_threads : {1, 2, 3}) {
    ThreadExecutor threads(n_threads);
    const double seconds = best_read_seconds(buffer, threads);
    EXPECT_GT(seconds, 0);
    EXPECT_LT(seconds, 60);
  }
}

TEST(ReadWall, NoMemoryIsSaid) { EXPECT_FALSE(ReadBuffer(size_t{1} << 60).ok()); }

}  // namespace
}  // namespace kedge
