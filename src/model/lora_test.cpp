#include "model/lora.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tensor/test_gguf.h"

namespace kedge::model {
namespace {

using tensor::LoraMatrices;

constexpr int64_t kIn = 8, kOut = 6, kRank = 2;
const std::string kMatrix = "blk.0.attn_q.weight";

std::vector<float> numbers(int64_t n, int64_t step) {
  std::vector<float> out(static_cast<size_t>(n));
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = 0.125F * static_cast<float>((static_cast<int64_t>(i) * step) % 11 - 5);
  return out;
}

// A "model" of two matrices, of which adapters may change the first.
struct Host {
  Host() {
    tensor::TestGguf gguf;
    gguf.tensor(kMatrix, GGML_TYPE_F32, {kIn, kOut}, numbers(kIn * kOut, 3));
    gguf.tensor("output.weight", GGML_TYPE_F32, {kIn, kOut}, numbers(kIn * kOut, 3));
    bytes = std::make_unique<tensor::TempFile>(gguf.bytes());
    compute = *tensor::Compute::create({.n_threads = 1, .pin = false});
    file = *tensor::GgufFile::open(bytes->path());
    weights = *tensor::Weights::create(*compute, *file, {.repack = false});
  }
  Result<std::unique_ptr<Lora>> load(const std::vector<std::byte>& adapter, float scale = 1) const {
    const tensor::TempFile path(adapter);
    return Lora::load(*compute, {.path = path.path(), .scale = scale},
                      {.file = *file, .weights = *weights, .architecture = "llama", .matrices = matrices});
  }
  std::unique_ptr<tensor::TempFile> bytes;
  std::unique_ptr<tensor::Compute> compute;
  std::unique_ptr<tensor::GgufFile> file;
  std::unique_ptr<tensor::Weights> weights;
  std::vector<std::string> matrices = {kMatrix};
};

LoraMatrices pair_of(const std::string& matrix, int64_t n_in = kIn, int64_t n_out = kOut) {
  return {.matrix = matrix,
          .n_in = n_in,
          .n_out = n_out,
          .rank = kRank,
          .a = numbers(kRank * n_in, 5),
          .b = numbers(n_out * kRank, 7)};
}

std::vector<std::byte> adapter_of(const LoraMatrices& pair, const std::string& architecture = "llama",
                                  float alpha = 3) {
  return lora_bytes({.name = "tuned", .description = "", .architecture = architecture, .alpha = alpha},
                    std::vector{pair});
}

TEST(Lora, AddsItsPartToAProductAndToAMatrix) {
  const Host host;
  for (const float scale : {1.0F, 0.5F, -2.0F, 0.0F}) {
    const auto lora = host.load(adapter_of(pair_of(kMatrix)), scale);
    ASSERT_TRUE(lora.ok()) << lora.error().message;
    const LoraMatrices pair = pair_of(kMatrix);
    // factor * B A, [n_out][n_in]
    std::vector<double> delta(kOut * kIn);
    for (int64_t o = 0; o < kOut; ++o) {
      for (int64_t i = 0; i < kIn; ++i) {
        for (int64_t r = 0; r < kRank; ++r)
          delta[static_cast<size_t>(o * kIn + i)] += static_cast<double>(scale) * 3 / kRank *
                                                     static_cast<double>(pair.b[static_cast<size_t>(o * kRank + r)]) *
                                                     static_cast<double>(pair.a[static_cast<size_t>(r * kIn + i)]);
      }
    }
    std::vector<float> transposed(kIn * kOut, 1);
    (*lora)->add_transposed(kMatrix, transposed);
    for (size_t i = 0; i < kIn; ++i) {
      for (size_t o = 0; o < kOut; ++o)
        EXPECT_NEAR(transposed[i * kOut + o], 1 + delta[o * kIn + i], 1e-6);
    }
    for (const int64_t n : {int64_t{1}, int64_t{40}}) {
      tensor::Graph graph(*host.compute, *host.weights);
      tensor::Tensor x = graph.input_f32(n, kIn);
      tensor::Tensor weight = host.weights->find(kMatrix);
      tensor::Tensor plain = graph.matmul(weight, x);
      tensor::Tensor both = (*lora)->added(graph, weight, x, plain);
      tensor::Tensor other = host.weights->find("output.weight");
      EXPECT_EQ((*lora)->added(graph, other, x, plain), plain) << "it does not name that one";
      EXPECT_EQ(both == plain, scale == 0) << "nothing is added";
      graph.output(plain);
      graph.output(both);
      ASSERT_TRUE(graph.finish().ok());
      const std::vector<float> rows = numbers(n * kIn, 4);
      graph.set(x, std::span<const float>(rows));
      graph.run();
      const auto before = graph.read(plain), after = graph.read(both);
      for (size_t t = 0; t < static_cast<size_t>(n); ++t) {
        for (size_t o = 0; o < kOut; ++o) {
          double sum = before[t * kOut + o];
          for (size_t i = 0; i < kIn; ++i)
            sum += delta[o * kIn + i] * static_cast<double>(rows[t * kIn + i]);
          EXPECT_NEAR(after[t * kOut + o], sum, 1e-5);
        }
      }
    }
  }
}

TEST(Lora, SaysWhatItIs) {
  const Host host;
  const auto lora = host.load(adapter_of(pair_of(kMatrix)), 0.5F);
  ASSERT_TRUE(lora.ok());
  EXPECT_EQ((*lora)->words(), "tuned (sha256 " + (*lora)->sha256().substr(0, 16) + ") at 0.5");
}

TEST(Lora, WhatDoesNotFitTheModelIsRefused) {
  const Host host;
  struct Mistake {
    std::vector<std::byte> bytes;
    std::vector<const char*> words;
  };
  const Mistake mistakes[] = {
      {adapter_of(pair_of(kMatrix), "qwen2"), {"general.architecture", "'qwen2'", "'llama'"}},
      {adapter_of(pair_of("output.weight")), {"output.weight.lora_a", "blk.0.attn_q.weight"}},
      {adapter_of(pair_of("blk.7.attn_q.weight")), {"blk.7.attn_q.weight.lora_a", "blk.0.attn_q.weight"}},
      {adapter_of(pair_of(kMatrix, kIn + 1)), {"lora_a", "9 columns", "8"}},
      {adapter_of(pair_of(kMatrix, kIn, kOut - 1)), {"lora_b", "5 rows", "6"}},
  };
  for (const Mistake& mistake : mistakes) {
    const auto lora = host.load(mistake.bytes);
    ASSERT_FALSE(lora.ok());
    EXPECT_EQ(lora.error().code, ErrorCode::model_unreadable);
    for (const char* word : mistake.words)
      EXPECT_NE(lora.error().message.find(word), std::string::npos) << lora.error().message;
  }
  EXPECT_EQ(host.load(adapter_of(pair_of(kMatrix)), NAN).error().code, ErrorCode::usage);
}

}  // namespace
}  // namespace kedge::model
