#include "eviction/row_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "eviction/example.h"
#include "eviction/select.h"
#include "eviction/synthetic_heads.h"
#include "eviction/window_scorer.h"
#include "eviction/wrapper.h"

namespace kedge::eviction {
namespace {

TEST(RowMath, NormsOfTheExample) {
  const ExampleHead head;
  const KvHeadView& rows = head.input().rows;
  const std::vector<float> keys = row_norms(rows, Part::keys, Norm::l2);
  const std::vector<float> values = row_norms(rows, Part::values, Norm::l1);
  const std::vector<float> squares = row_norms(rows, Part::values, Norm::l2_squared);
  const float expected_keys[] = {2, 1, 1, 0, std::sqrt(2.0F), 1};
  const float expected_values[] = {1, 3, 2, 4, 2, 3};
  const float expected_squares[] = {1, 5, 2, 16, 4, 5};
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_FLOAT_EQ(keys[i], expected_keys[i]);
    EXPECT_FLOAT_EQ(values[i], expected_values[i]);
    EXPECT_FLOAT_EQ(squares[i], expected_squares[i]);
  }
}

TEST(RowMath, ProjectionsOfTheExample) {
  // w_o keeps value x and doubles value y: |x| + 2 |y|
  const ExampleHead head;
  const float expected[] = {1, 4, 3, 4, 4, 5};
  const std::vector<float> norms = projected_norms(head.input());
  for (size_t i = 0; i < 6; ++i)
    EXPECT_FLOAT_EQ(norms[i], expected[i]);
}

// Against plain loops, for row counts around a block and columns around a vector.
TEST(RowMath, AgreesWithPlainSums) {
  for (const int n_rows : {1, 15, 16, 17, 300}) {
    for (const int n_embd : {1, 16, 17, 50}) {
      const SyntheticHead head({.n_rows = n_rows, .n_window = 1, .seed = 3, .n_embd = n_embd});
      const HeadInput in = head.input();
      const std::vector<float> norms = projected_norms(in);
      std::vector<float> products(static_cast<size_t>(n_rows) * in.group);
      key_products(in.rows, in.q, in.group, 0.5F, products);
      for (int i = 0; i < n_rows; ++i) {
        double norm = 0;
        for (int g = 0; g < in.group; ++g) {
          double product = 0;
          for (int j = 0; j < 64; ++j)
            product += 0.5 * head.q[g * 64 + j] * head.k[i * 64 + j];
          EXPECT_NEAR(products[static_cast<size_t>(g * n_rows + i)], product, 1e-4);
          for (int e = 0; e < n_embd; ++e) {
            double x = 0;
            for (int j = 0; j < 64; ++j)
              x += double{head.v[i * 64 + j]} * head.w_o[(g * 64 + j) * n_embd + e];
            norm += std::abs(x) / in.group;
          }
        }
        EXPECT_NEAR(norms[i], norm, 1e-5 * norm) << n_rows << " rows, " << n_embd << " columns, row " << i;
      }
    }
  }
}

TEST(RowMath, RedundancyKeepsTheLastOfARepetition) {
  // Unit keys: x, y, x, -, xy, y. Rows 0 and 2 repeat each other, 1 and 5 too; row 4 is at 45 degrees to all of them.
  const ExampleHead head;
  const float c = std::sqrt(0.5F);
  // Of cos above 0.5 the newest is dropped: row 0 drops its pair with 4, 1 with 5, 2 with 4, 4 with 5, 5 with 4.
  const float expected[] = {(1 + c) / 6, (c + 1) / 6, (1 + c) / 6, 0, c / 6, 0};
  const std::vector<float> redundancy = key_redundancy(head.input().rows, 0.5F);
  for (size_t i = 0; i < 6; ++i)
    EXPECT_NEAR(redundancy[i], expected[i], 1e-6) << i;
}

TEST(RowMath, OneRowThatTakesAllAttentionIsNotLostInRounding) {
  // y = v[0] + tiny: the square of the difference must be right although both are large.
  const ExampleHead head;
  std::vector<float> y(ExampleHead::kHeadDim, 0.0F);
  y[0] = 1.0001F;
  std::vector<float> weight = {1e8F, 0, 0, 0, 0, 0};
  std::vector<float> sum(6, 0.0F);
  add_output_errors(head.input().rows, {.y = y.data(), .n = 1, .weight = weight.data()}, sum);
  EXPECT_NEAR(sum[0], 1.0, 3e-3);
}

TEST(OneList, MeansGoByPosition) {
  // Rows of the second head: positions 1, 2, 5 and so on; a position that only one head holds keeps its score.
  const SyntheticHead a({.n_rows = 3, .n_window = 1, .gap = 0, .seed = 1});
  const SyntheticHead b({.n_rows = 40, .n_window = 1, .gap = 0.5, .seed = 2});
  const std::vector<HeadInput> heads = {a.input(), b.input()};
  std::vector<std::vector<float>> score = {{10, 20, 30}, std::vector<float>(40, 2)};
  average_over_heads(heads, score);
  for (int i = 0; i < 3; ++i) {
    const auto at = std::find(b.row_positions.begin(), b.row_positions.end(), i);
    const float own = 10.0F * static_cast<float>(i + 1);
    EXPECT_EQ(score[0][i], at == b.row_positions.end() ? own : (own + 2) / 2);
    if (at != b.row_positions.end()) {
      EXPECT_EQ(score[1][at - b.row_positions.begin()], (own + 2) / 2);
    }
  }
  EXPECT_EQ(score[1][39], 2);
}

std::string error_of(const std::string& text) {
  const auto policy = parse_policy(text, {});
  return policy ? "" : policy.error().message;
}

TEST(Wrapper, TheBaseIsAScorerThatEvicts) {
  EXPECT_EQ(error_of("chunkkv:base=andpro"), "");
  EXPECT_EQ(error_of("criticalkv:base=streaming_llm"), "") << "aliases too";
  EXPECT_NE(error_of("chunkkv:base=snapkw").find("did you mean 'snapkv'"), std::string::npos);
  EXPECT_NE(error_of("chunkkv:base=none").find("that evicts"), std::string::npos);
  EXPECT_NE(error_of("criticalkv:base=").find("base"), std::string::npos);
}

TEST(Wrapper, NeedsWhatItsBaseNeeds) {
  EXPECT_EQ(policy_of("chunkkv:base=andpro").scorer->needs().window, 32);
  EXPECT_EQ(policy_of("chunkkv:base=knorm").scorer->needs().window, 0);
  EXPECT_TRUE(policy_of("chunkkv:base=criticalkv").scorer->needs().output_weights);
  EXPECT_TRUE(policy_of("criticalkv:base=tova").scorer->needs().output_weights);
  EXPECT_FALSE(policy_of("criticalkv:base=knorm").scorer->splits_by_query());
}

TEST(ChunkKv, PartialChunksCompeteByTheirMeans) {
  // Scores 0..9 by position, chunks of 4: 0-3, 4-7 and 8-9. The last has the largest mean but not the largest sum.
  const SyntheticHead head({.n_rows = 10, .n_window = 1, .gap = 0, .seed = 1});
  SerialExecutor executor;
  const LayerInput in{.heads = {head.input()}, .rows_total = 6};
  const Policy policy = policy_of("chunkkv:base=recent,chunk=4,recent=0");
  EXPECT_EQ(decide_layer(policy, in, executor).keep[0], (std::vector<int32_t>{4, 5, 6, 7, 8, 9}));
  const LayerInput two{.heads = {head.input()}, .rows_total = 2};
  EXPECT_EQ(decide_layer(policy, two, executor).keep[0], (std::vector<int32_t>{8, 9}));
  // Sinks 0 and 1 stay; rows 2 and 3, their chunk's rest, are the last to be chosen.
  const LayerInput sinks{.heads = {head.input()}, .n_sinks = 2, .rows_total = 9};
  EXPECT_EQ(decide_layer(policy, sinks, executor).keep[0], (std::vector<int32_t>{0, 1, 3, 4, 5, 6, 7, 8, 9}));
}

TEST(CriticalKv, StageOneIsSureOfItsRows) {
  // Example: base `recent` says 0..5, |projected values| 1 4 3 4 4 5. Four rows, half of them by the base: 5 and 4;
  // then score * norm: 0, 4, 6, 12.
  const ExampleHead head;
  SerialExecutor executor;
  const LayerInput in{.heads = {head.input()}, .rows_total = 4};
  const Policy policy = policy_of("criticalkv:base=recent,recent=0,epsilon=0");
  const LayerDecision decision = decide_layer(policy, in, executor);
  EXPECT_EQ(decision.keep[0], (std::vector<int32_t>{2, 3, 4, 5}));
  EXPECT_FLOAT_EQ(decision.score[0][3], 12);
  EXPECT_FLOAT_EQ(decision.score[0][5], 52);  // twice the largest and one
  // A protected row counts as one of stage 1's: row 0 and row 5, then 12 and 4 * 4.
  const LayerInput sink{.heads = {head.input()}, .n_sinks = 1, .rows_total = 4};
  EXPECT_EQ(decide_layer(policy, sink, executor).keep[0], (std::vector<int32_t>{0, 3, 4, 5}));
}

TEST(Scorers, OneQueryAndFewRowsAreEnough) {
  // As while decoding: the newest query only; also no row before the window, and a single row.
  SerialExecutor executor;
  for (const Method& method : scorers()) {
    for (const int n_rows : {1, 2, 5, 40}) {
      const SyntheticHead head({.n_rows = n_rows, .n_window = 1, .seed = 9});
      const LayerInput in{.heads = {head.input()}, .rows_total = (n_rows + 1) / 2};
      const LayerDecision decision = decide_layer(policy_of(method.info.name), in, executor);
      for (const float score : decision.score[0])
        EXPECT_TRUE(std::isfinite(score)) << method.info.name << " of " << n_rows;
    }
  }
}

TEST(Scorers, KeysAndValuesOfNothingAreFinite) {
  // Rows of zeros: no length, no direction, no range.
  struct alignas(64) Block {
    std::byte bytes[size_t{64} * kBlockRows * kRowTypeBytes * 2] = {};
  };
  const SyntheticHead head({.n_rows = 16, .n_window = 2, .gap = 0, .seed = 4});
  const std::vector<Block> block(1);
  const uint32_t id = 0;
  SerialExecutor executor;
  for (const char* options :
       {"knorm", "keydiff", "keydiff:anchor=mean", "lagkv:lag=3", "lagkv:lag=3,cross_scoring=on", "rkv",
        "rkv:redundancy=mean,group=mean", "vatp", "dropkv", "obcache", "criticalkv", "chunkkv", "tova"}) {
    HeadInput in = head.input();
    in.rows.blocks = block[0].bytes;
    in.rows.block_ids = &id;
    std::vector<int32_t> positions(kBlockRows);
    for (int i = 0; i < kBlockRows; ++i)
      positions[i] = i;
    in.rows.positions = positions.data();
    const LayerDecision decision = decide_layer(policy_of(options), {.heads = {in}, .rows_total = 8}, executor);
    for (const float score : decision.score[0])
      EXPECT_TRUE(std::isfinite(score)) << options;
  }
}

}  // namespace
}  // namespace kedge::eviction
