#include "session/reconstruct.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace kedge::session {
namespace {

TEST(Probes, ArePiecesWithTheWordsBeforeThem) {
  const ProbeText words{.first = {1, 2}, .later = {3, 4, 5}, .suffix = {6}};
  EXPECT_EQ(words.extra(), 3 + 8 + 1);
  std::vector<Token> text(kProbeTokens + 10);
  std::iota(text.begin(), text.end(), 100);
  const std::vector<Probe> probes = make_probes(words, text, 0);
  ASSERT_EQ(probes.size(), 2U);
  EXPECT_EQ(probes[0].tokens.size(), 3U + kProbeTokens);
  EXPECT_EQ((std::vector<Token>(probes[0].tokens.begin(), probes[0].tokens.begin() + 4)),
            (std::vector<Token>{1, 2, 6, 100}));
  EXPECT_EQ(probes[1].repeated.begin, kProbeTokens);
  EXPECT_EQ(probes[1].repeated.end, kProbeTokens + 10);
  EXPECT_EQ(probes[1].repeated.probe, kProbeTokens + 10);
  std::vector<Token> expected = {3, 4, 5};
  for (int i = -8; i < 0; ++i)
    expected.push_back(100 + static_cast<Token>(kProbeTokens) + i);
  expected.push_back(6);
  for (int i = 0; i < 10; ++i)
    expected.push_back(100 + static_cast<Token>(kProbeTokens) + i);
  EXPECT_EQ(probes[1].tokens, expected);
  for (const Probe& probe : probes)
    EXPECT_LE(static_cast<int64_t>(probe.tokens.size()), probe_rows(kProbeTokens + 10, words.extra()));
}

}  // namespace
}  // namespace kedge::session
