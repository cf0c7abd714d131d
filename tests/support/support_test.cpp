// The tests' own tools, proven on each other: the plain model against libllama, the divergence against known values.
#include <gtest/gtest.h>

#include <cmath>

#include "support/kl.h"
#include "support/oracle.h"
#include "support/plain_llama.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace kedge::test {
namespace {

std::vector<TinyOptions> plain_cases() {
  return {
      {},
      {.n_heads = 2, .n_kv_heads = 2, .tied = true},
      {.n_heads = 6, .n_kv_heads = 2, .n_embd = 96, .rope_base = 100000.0F},
      {.n_heads = 2, .n_kv_heads = 1, .head_dim = 80, .n_embd = 160, .rope_freqs = true, .biases = true},
      {.n_heads = 4, .n_kv_heads = 1, .head_dim = 96, .rope_scaling = "linear", .rope_factor = 4.0F},
  };
}

TEST(Support, PlainModelAgreesWithLibllama) {
  for (const TinyOptions& options : plain_cases()) {
    const TempDir dir;
    const TinyWeights weights = make_tiny_weights(options);
    write_tiny_model(weights, dir.file("tiny.gguf"));
    const Oracle oracle(dir.file("tiny.gguf"));
    ASSERT_EQ(oracle.n_vocab(), options.n_vocab);
    const std::vector<int32_t> tokens = random_tokens(70, 3);
    PlainLlama plain(weights, false);
    std::vector<std::vector<float>> ours = plain.append(std::span(tokens).first(40), plain.everything());
    for (auto& row : plain.append(std::span(tokens).subspan(40), plain.everything()))
      ours.push_back(row);
    Divergence d;
    double square = 0;
    oracle.logits(tokens, 0, {}, [&](int64_t i, std::span<const float> row) {
      d.add(row, ours[static_cast<size_t>(i)]);
      for (float x : row)
        square += static_cast<double>(x) * static_cast<double>(x) / static_cast<double>(row.size() * tokens.size());
    });
    EXPECT_EQ(d.n(), 70);
    EXPECT_LT(d.max_abs(), 2e-5) << options.head_dim;
    EXPECT_GT(std::sqrt(square), 0.8) << "logits are too flat to prove anything";
    EXPECT_LT(std::sqrt(square), 4.0);
  }
}

TEST(Support, EvictedPositionsChangeThePlainModel) {
  const TinyWeights weights = make_tiny_weights({});
  const std::vector<int32_t> tokens = random_tokens(60, 5);
  PlainLlama full(weights);
  full.append(std::span(tokens).first(59), full.everything());
  PlainLlama evicted = full;
  Kept kept = full.everything();
  for (auto& layer : kept)
    layer[0].erase(layer[0].begin() + 10, layer[0].begin() + 40);
  const auto a = full.append(std::span(tokens).last(1), full.everything());
  const auto b = evicted.append(std::span(tokens).last(1), kept);
  EXPECT_GT(kl_divergence(a[0], b[0]), 1e-3);
}

TEST(Support, QuantisedFilesOpenInLibllama) {
  for (const WeightType type : {WeightType::f16, WeightType::q8_0, WeightType::q4_1}) {
    const TempDir dir;
    write_tiny_model(make_tiny_weights({.weights = type}), dir.file("tiny.gguf"));
    const Oracle oracle(dir.file("tiny.gguf"));
    EXPECT_EQ(oracle.logits(random_tokens(5, 1), 0, {}).size(), 5U);
    EXPECT_EQ(oracle.tokenize("abc"), (std::vector<int32_t>{'a', 'b', 'c'}));
  }
}

TEST(Support, Divergence) {
  const std::vector<float> even = {0.0F, 0.0F};
  const std::vector<float> skewed = {std::log(3.0F), 0.0F};  // 3/4, 1/4
  EXPECT_NEAR(kl_divergence(even, skewed), 0.5 * std::log(0.5 / 0.75) + 0.5 * std::log(0.5 / 0.25), 1e-7);
  EXPECT_EQ(kl_divergence(skewed, skewed), 0.0);
  Divergence d;
  EXPECT_TRUE(std::isnan(d.mean_kld()));
  d.add(even, skewed);
  EXPECT_EQ(d.same_top(), 1.0);
  EXPECT_NEAR(d.max_abs(), std::log(3.0), 1e-6);
  d.add(std::vector<float>{0.0F, NAN}, even);
  EXPECT_FALSE(d.mean_kld() < 1e9);
  EXPECT_FALSE(d.max_kld() < 1e9);
}

}  // namespace
}  // namespace kedge::test
