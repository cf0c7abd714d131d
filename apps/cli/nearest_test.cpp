#include "nearest.h"

#include <gtest/gtest.h>

#include <vector>

namespace kedge::cli {
namespace {

TEST(Nearest, DistanceCountsEdits) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("andpor", "andpro"), 1);  // a swap is one edit
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
}

TEST(Nearest, PicksTheClosest) {
  const std::vector<std::string> flags = {"--model", "--kv-budget", "--kv-policy", "--temp"};
  EXPECT_EQ(nearest("--kv-buget", flags), "--kv-budget");
  EXPECT_EQ(nearest("--temperature", flags), "--temp");
  EXPECT_EQ(nearest("--mdoel", flags), "--model");
}

TEST(Nearest, SharedBeginningBreaksTies) {
  const std::vector<std::string> words = {"xat", "bax"};
  EXPECT_EQ(nearest("bat", words), "bax");
}

TEST(Nearest, NoCandidates) { EXPECT_EQ(nearest("x", {}), ""); }

}  // namespace
}  // namespace kedge::cli
