// What a gate is taught from: features of a cut know nothing of what comes after it, and late labels nothing else.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "door.h"
#include "gate/standardise.h"
#include "session/timeline.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"
#include "train/collect.h"

namespace kedge::test {
namespace {

constexpr int kTokens = 240;
constexpr int kWindow = 16;

class Collects : public testing::Test {
 protected:
  void SetUp() override {
    write_tiny_model(make_tiny_weights({.n_layers = 3, .n_heads = 4, .n_kv_heads = 2, .qk_gain = 1.4F, .seed = 3}),
                     dir_.file("tiny.gguf"));
    compute_ = *tensor::Compute::create({.n_threads = 1});
    net_ = *model::load_model(*compute_, dir_.file("tiny.gguf"), {});
    tokenizer_ = *model::Tokenizer::open(dir_.file("tiny.gguf"));
  }
  train::Shard read(std::span<const Token> tokens, train::Label label, const train::Collected& what) const {
    const session::Engine engine{.compute = compute_.get(),
                                 .model = net_.get(),
                                 .kernels = &best_attention_kernels(),
                                 .tokenizer = tokenizer_.get()};
    train::Collector collector(engine, {.what = what, .labels = {.label = label, .window = kWindow}, .share = 0.5});
    return *collector.read(tokens, 7);
  }

  const train::Collected kAll = {
      .hidden = true, .key_value = true, .aged = true, .features = train::measured_features()};
  TempDir dir_;
  std::unique_ptr<tensor::Compute> compute_;
  std::unique_ptr<model::Model> net_;
  std::unique_ptr<model::Tokenizer> tokenizer_;
  std::vector<Token> tokens_ = random_tokens(kTokens, 41);
};

TEST_F(Collects, ShapesFollowWhatIsAskedFor) {
  const train::Shard all = read(tokens_, train::Label::both, kAll);
  const train::ShardShape& shape = all.shape;
  EXPECT_EQ(shape.n_rows, (kTokens - kWindow - 4) / 2);
  EXPECT_EQ(shape.n_embd, 128U);
  EXPECT_EQ(shape.n_kv, 2U * 2 * 64);
  EXPECT_GT(shape.n_aged, 10U) << "rows that left the window before the cut";
  EXPECT_LT(shape.n_aged, shape.n_rows);
  for (const train::LayerRows& layer : all.layers) {
    EXPECT_EQ(layer.x.size(), size_t{shape.n_rows} * shape.n_embd);
    EXPECT_EQ(layer.kv.size(), size_t{shape.n_rows} * shape.n_kv);
    EXPECT_EQ(layer.y.size(), size_t{shape.n_rows} * 2);
    EXPECT_EQ(layer.features.size(), size_t{shape.n_aged} * 2 * shape.n_features());
    EXPECT_EQ(layer.late.size(), size_t{shape.n_aged} * 2);
    for (size_t i = 0; i < layer.late.size(); ++i)
      EXPECT_LE(layer.late[i], layer.y[i]) << "the largest of fewer weights";
  }
  const train::Shard hidden = read(tokens_, train::Label::both, {});
  EXPECT_EQ(hidden.shape.n_kv + hidden.shape.n_aged + hidden.shape.features, 0U);
  EXPECT_EQ(hidden.layers[1].x, all.layers[1].x);
  EXPECT_EQ(hidden.layers[1].y, all.layers[1].y);
}

// The cut lies before two thirds of the window.
TEST_F(Collects, NoFeatureKnowsWhatComesAfterTheCut) {
  std::vector<Token> other = tokens_;
  const std::vector<Token> end = random_tokens(kTokens / 3, 42);
  std::ranges::copy(end, other.end() - kTokens / 3);
  const train::Shard a = read(tokens_, train::Label::future, kAll);
  const train::Shard b = read(other, train::Label::future, kAll);
  ASSERT_EQ(a.shape, b.shape);
  for (size_t layer = 0; layer < a.layers.size(); ++layer) {
    EXPECT_EQ(a.layers[layer].features, b.layers[layer].features);
    EXPECT_NE(a.layers[layer].late, b.layers[layer].late);
  }
}

// What is measured does not depend on what else is.
TEST_F(Collects, FewerFeaturesAreTheSameOnes) {
  using gate::Feature;
  const train::Shard all = read(tokens_, train::Label::future, kAll);
  for (const std::vector<Feature>& asked : {std::vector<Feature>{Feature::window_max, Feature::age, Feature::key_norm},
                                            {Feature::attention},
                                            {Feature::past, Feature::echo},
                                            {}}) {
    const train::FeatureSet set = train::set_of(asked);
    const train::Shard some =
        read(tokens_, train::Label::future, {.hidden = true, .key_value = true, .aged = true, .features = set});
    ASSERT_EQ(some.shape.n_aged, all.shape.n_aged);
    EXPECT_EQ(train::features_of(some.shape.features), asked);
    const std::vector<Feature> of_all = train::features_of(all.shape.features);
    for (size_t layer = 0; layer < all.layers.size(); ++layer) {
      EXPECT_EQ(some.layers[layer].late, all.layers[layer].late);
      std::vector<uint16_t> expected;
      for (size_t i = 0; i < all.layers[layer].features.size(); ++i) {
        if (std::ranges::count(asked, of_all[i % of_all.size()]) > 0)
          expected.push_back(all.layers[layer].features[i]);
      }
      EXPECT_EQ(some.layers[layer].features, expected);
    }
  }
}

// The age of every aged row says where the cut was; the other features are those that a session of these tokens shows.
TEST_F(Collects, FeaturesAreOfOneMoment) {
  const train::Shard shard = read(tokens_, train::Label::future, kAll);
  const std::vector<gate::Feature> features = train::features_of(train::measured_features());
  const auto column = [&](gate::Feature feature) {
    return static_cast<size_t>(std::ranges::find(features, feature) - features.begin());
  };
  const auto value = [&](size_t layer, size_t row, size_t head, gate::Feature feature) {
    return gate::widen(shard.layers[layer].features[(row * 2 + head) * features.size() + column(feature)]);
  };
  for (size_t layer = 0; layer < 3; ++layer) {
    for (size_t row = 0; row < shard.shape.n_aged; ++row) {
      const float age = value(layer, row, 0, gate::Feature::age);
      EXPECT_EQ(age, value(2, row, 1, gate::Feature::age));
      EXPECT_GT(age, std::log(static_cast<float>(kWindow)) - 0.01F) << "it has left the window";
      EXPECT_LT(age, std::log(kTokens * 2.0F / 3)) << "and stands before the cut";
      for (size_t head = 0; head < 2; ++head) {
        const float most = value(layer, row, head, gate::Feature::window_max);
        EXPECT_GE(most, value(layer, row, head, gate::Feature::window_mean) - 0.01F);
        EXPECT_LE(most, 0.0F);
        EXPECT_GT(value(layer, row, head, gate::Feature::attention), std::log(1e-8F))
            << "all queries since it was written";
      }
    }
  }
}

}  // namespace
}  // namespace kedge::test
