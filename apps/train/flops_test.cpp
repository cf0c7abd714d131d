#include "train/flops.h"

#include <gtest/gtest.h>

namespace kedge::train {
namespace {

const model::HyperParams kTiny{.architecture = {},
                               .name = {},
                               .n_layers = 2,
                               .n_embd = 8,
                               .n_heads = 2,
                               .n_kv_heads = 1,
                               .head_dim = 4,
                               .n_ff = 16,
                               .n_vocab = 100,
                               .rope = {},
                               .n_params = 1000,
                               .weight_type = {}};

TEST(Flops, AreCountedProductByProduct) {
  double products = 0;
  for (int layer = 0; layer < 2; ++layer) {
    for (int t = 0; t < 5; ++t) {
      products += 8 * 8 + 2 * 8 * 4 + 8 * 8;  // queries; keys and values; output
      products += 3 * 8 * 16;
      products += 2.0 * 2 * 4 * (t + 1);  // two products with each row, in each head
    }
  }
  EXPECT_DOUBLE_EQ(full_reading_flops(kTiny, 5), 2 * products);
}

TEST(Flops, APassIsMoreWithEachThingItDoes) {
  const PassWork plain{.n = 50, .n_counted = 20, .width = 0, .from_full = false, .full = false, .recompute = false};
  PassWork more = plain;
  more.full = true;
  EXPECT_DOUBLE_EQ(pass_flops(kTiny, more), pass_flops(kTiny, plain) + full_reading_flops(kTiny, 50));
  more.recompute = true;
  EXPECT_DOUBLE_EQ(pass_flops(kTiny, more), pass_flops(kTiny, plain) + 2 * full_reading_flops(kTiny, 50));
  more.from_full = true;
  EXPECT_DOUBLE_EQ(pass_flops(kTiny, more),
                   pass_flops(kTiny, plain) + 2 * full_reading_flops(kTiny, 50) + 2.0 * 8 * 100 * 20);
}

TEST(Flops, LabelsAndFits) {
  EXPECT_DOUBLE_EQ(label_flops(kTiny, 30, false), full_reading_flops(kTiny, 30));
  EXPECT_DOUBLE_EQ(label_flops(kTiny, 30, true), full_reading_flops(kTiny, 60));
  // A hidden unit of a layer, a row: 8 + 1 products there, 8 + 1 for its weights' gradients, 1 for its own.
  EXPECT_DOUBLE_EQ(fit_flops(kTiny, 3, 7, 5), 2.0 * 3 * (2 * 8 + 3 * 1) * 2 * 7 * 5);
}

TEST(Flops, TheOwnTrainingFollowsTheRuleThatIsStated) {
  EXPECT_DOUBLE_EQ(own_training_flops(1000), 6.0 * 1000 * 20 * 1000);
  const std::string line = effort_line(1.2e6, 3, 1000);
  EXPECT_NE(line.find(", 1 % of"), std::string::npos) << line;
  EXPECT_NE(line.find("20 tokens a parameter"), std::string::npos) << line;
}

}  // namespace
}  // namespace kedge::train
