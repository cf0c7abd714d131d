// Every scorer's worked example, from the registry.
#include "eviction/example.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "eviction/synthetic_heads.h"

namespace kedge::eviction {
namespace {

TEST(Example, EveryScorerSaysWhatItsPageSays) {
  for (const Method& method : scorers()) {
    const WorkedExample& example = method.example;
    ASSERT_EQ(example.score.size(), size_t{ExampleHead::kRows}) << method.info.name << " has no worked example";
    const Policy policy = policy_of(method.info.name + (example.options.empty() ? "" : ":" + example.options));
    const std::vector<float> score = example_scores(*policy.scorer);
    for (size_t i = 0; i < score.size(); ++i) {
      EXPECT_NEAR(score[i], example.score[i], 1e-3 * std::max(1.0F, std::abs(example.score[i])))
          << policy.text << " row " << i;
    }
  }
}

TEST(Example, TheHeadIsWhatItsPictureShows) {
  const ExampleHead head;
  const HeadInput& in = head.input();
  std::vector<float> weights(2 * ExampleHead::kRows);
  const TileQueries queries{.q = in.q,
                            .row_stride = in.rows.head_dim,
                            .head_stride = in.rows.head_dim,
                            .positions = in.query_positions,
                            .n_queries = 2,
                            .group = 1,
                            .scale = in.scale};
  in.kernels->attention_weights(in.rows, queries, weights.data());
  // exp of 2 0 1 0 1 over 14.826, and of 2 1 1 0 2 1 over 23.933
  const float expected[2][6] = {{0.4984F, 0.0674F, 0.1833F, 0.0674F, 0.1833F, 0},
                                {0.3087F, 0.1136F, 0.1136F, 0.0418F, 0.3087F, 0.1136F}};
  for (int t = 0; t < 2; ++t) {
    for (int row = 0; row < 6; ++row)
      EXPECT_NEAR(weights[t * 6 + row], expected[t][row], 2e-4) << t << " " << row;
  }
}

}  // namespace
}  // namespace kedge::eviction
