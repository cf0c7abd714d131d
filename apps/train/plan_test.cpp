#include "train/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace kedge::train {
namespace {

TEST(Plan, WindowsAreEvenOverDocumentsAndDoNotOverlap) {
  const std::vector<DocumentSize> documents = {
      {.name = "a", .n_tokens = 100'000}, {.name = "b", .n_tokens = 50'000}, {.name = "c", .n_tokens = 999}};
  const std::vector<Window> windows = plan_windows(documents, {.n_tokens = 30'000, .lengths = {1000}});
  std::map<size_t, int> of;
  for (size_t i = 0; i < windows.size(); ++i) {
    ++of[windows[i].document];
    EXPECT_EQ(windows[i].n, 1000);
    EXPECT_LE(windows[i].begin + windows[i].n, documents[windows[i].document].n_tokens);
    if (i > 0 && windows[i].document == windows[i - 1].document) {
      EXPECT_GE(windows[i].begin, windows[i - 1].begin + windows[i - 1].n);
    }
  }
  EXPECT_EQ(windows.size(), 30u);
  EXPECT_EQ(of[0], 20);
  EXPECT_EQ(of[1], 10);
  EXPECT_EQ(of.count(2), 0u) << "shorter than a window";
}

TEST(Plan, NamedDocumentsAreHeldOutElseEveryTenthWindow) {
  std::vector<DocumentSize> documents = {{.name = "a", .n_tokens = 20'000}, {.name = "b", .n_tokens = 20'000}};
  const auto n_held_out = [&] {
    return std::ranges::count_if(plan_windows(documents, {.n_tokens = 40'000, .lengths = {1000}}),
                                 [](const Window& w) { return w.held_out; });
  };
  EXPECT_EQ(n_held_out(), 4);
  documents[1].held_out = true;
  EXPECT_EQ(n_held_out(), 20);
}

TEST(Plan, LengthsAreTakenInTurn) {
  const std::vector<DocumentSize> documents = {{.name = "a", .n_tokens = 10'000}};
  const std::vector<Window> windows = plan_windows(documents, {.n_tokens = 10'000, .lengths = {1000, 3000}});
  ASSERT_EQ(windows.size(), 5u);
  EXPECT_EQ(windows[0].n, 1000);
  EXPECT_EQ(windows[1].n, 3000);
  EXPECT_EQ(windows[1].begin, 1000);
  EXPECT_EQ(windows[4].begin, 8000);
}

TEST(Plan, NothingComesOfNothing) {
  EXPECT_TRUE(plan_windows({}, {}).empty());
  const std::vector<DocumentSize> documents = {{.name = "a", .n_tokens = 10}};
  EXPECT_TRUE(plan_windows(documents, {}).empty());
}

}  // namespace
}  // namespace kedge::train
