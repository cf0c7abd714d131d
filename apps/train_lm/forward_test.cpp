// The differentiable forward against the engine and against plain loops in double.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "api/model_impl.h"
#include "base/output_file.h"
#include "kedge/session.h"
#include "session/model_identity.h"
#include "support/plain_llama.h"
#include "support/real_model.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"
#include "train_lm/pass.h"

namespace kedge::lm {
namespace {

using at::Tensor;

std::unique_ptr<Model> opened(const std::string& path) {
  Result<std::unique_ptr<Model>> model = Model::load({.path = path, .n_threads = 1, .prompt_weights = "f32"});
  EXPECT_TRUE(model.ok()) << (model ? "" : model.error().message);
  return model ? *std::move(model) : nullptr;
}

Tensor as_tensor(std::span<const int32_t> tokens) {
  Tensor out = at::empty({static_cast<int64_t>(tokens.size())}, at::kLong);
  std::copy(tokens.begin(), tokens.end(), out.data_ptr<int64_t>());
  return out;
}

// f32 [n, n_vocab] of the engine with its full cache, every token in one batch.
Tensor engine_logits(const Model& model, std::span<const int32_t> tokens) {
  Result<std::unique_ptr<Session>> session = Session::create(model, SessionOptions());
  EXPECT_TRUE(session.ok());
  Tensor out = at::empty({static_cast<int64_t>(tokens.size()), model.info().n_vocab}, at::kFloat);
  const Status scored = (*session)->score(tokens, [&](int64_t i, std::span<const float> row) {
    std::copy(row.begin(), row.end(), out.data_ptr<float>() + i * out.size(1));
  });
  EXPECT_TRUE(scored.ok()) << (scored ? "" : scored.error().message);
  return out;
}

Tensor our_logits(const Model& model, std::span<const int32_t> tokens, at::ScalarType type) {
  const Result<FrozenModel> frozen = freeze(*model.impl().net, type);
  EXPECT_TRUE(frozen.ok());
  return full_logits(*frozen, as_tensor(tokens));
}

double largest(const Tensor& a, const Tensor& b) { return (a - b).abs().max().item<double>(); }

struct Variant {
  const char* name;
  test::TinyOptions options;
  bool has_oracle = true;
  double bound = 1e-3;  // of the distance from the engine, which holds K and V as f16
  friend void PrintTo(const Variant& one, std::ostream* out) { *out << one.name; }
};

class TinyForward : public testing::TestWithParam<Variant> {};

TEST_P(TinyForward, LogitsAreTheEnginesAndThoseOfPlainLoops) {
  const test::TempDir folder;
  const test::TinyWeights weights = test::make_tiny_weights(GetParam().options);
  test::write_tiny_model(weights, folder.file("tiny.gguf"));
  const std::unique_ptr<Model> model = opened(folder.file("tiny.gguf"));
  ASSERT_NE(model, nullptr);
  const std::vector<int32_t> tokens = test::random_tokens(150, 3);
  const Tensor ours = our_logits(*model, tokens, at::kFloat);
  EXPECT_GT(ours.std().item<double>(), 0.5);
  EXPECT_LT(largest(ours, engine_logits(*model, tokens)), GetParam().bound);
  if (!GetParam().has_oracle)
    return;
  test::PlainLlama plain(weights, false);
  const std::vector<std::vector<float>> rows = plain.append(tokens, plain.everything());
  Tensor oracle = at::empty_like(ours);
  for (size_t i = 0; i < rows.size(); ++i)
    std::copy(rows[i].begin(), rows[i].end(), oracle.data_ptr<float>() + static_cast<int64_t>(i) * oracle.size(1));
  EXPECT_LT(largest(ours, oracle), 3e-5);
  EXPECT_LT(largest(our_logits(*model, tokens, at::kDouble).to(at::kFloat), oracle), 3e-6);
}

INSTANTIATE_TEST_SUITE_P(
    Variants, TinyForward,
    testing::Values(Variant{"grouped", {}}, Variant{"tied", {.tied = true}},
                    Variant{"biases", {.n_heads = 2, .n_kv_heads = 1, .biases = true}},
                    Variant{"every_head_its_own", {.n_heads = 4, .n_kv_heads = 4, .head_dim = 32}},
                    Variant{"frequency_factors", {.rope_freqs = true}},
                    Variant{"linear", {.rope_scaling = "linear", .rope_factor = 4}},
                    Variant{"yarn", {.rope_scaling = "yarn", .rope_factor = 4, .rope_ctx_orig = 64}, false},
                    // Activations are rounded to 8 bits where weights are, in the engine.
                    Variant{"q8_0", {.weights = test::WeightType::q8_0}, false, 0.1}),
    [](const testing::TestParamInfo<Variant>& one) { return one.param.name; });

// What is learned goes to the engine as a file, in the order of the model's own.
TEST(AdapterForward, LogitsAreThoseOfTheEngineWithTheAdaptersFile) {
  const test::TempDir folder;
  const test::TinyOptions shapes[] = {
      {}, {.n_heads = 2, .n_kv_heads = 1, .biases = true}, {.n_heads = 4, .n_kv_heads = 4, .head_dim = 32}};
  for (const test::TinyOptions& shape : shapes) {
    test::write_tiny_model(test::make_tiny_weights(shape), folder.file("tiny.gguf"));
    const std::unique_ptr<Model> model = opened(folder.file("tiny.gguf"));
    ASSERT_NE(model, nullptr);
    const std::vector<int32_t> tokens = test::random_tokens(150, 3);
    const Result<FrozenModel> frozen = freeze(*model->impl().net, at::kFloat);
    ASSERT_TRUE(frozen.ok());
    LearnedLora lora = LearnedLora::fresh(*frozen, 3, 7, at::kFloat);
    const Tensor before = full_logits(*frozen, as_tensor(tokens));
    EXPECT_TRUE(at::equal(full_logits(*frozen, as_tensor(tokens), &lora), before)) << "it begins as nothing";
    at::manual_seed(3);
    for (Tensor& one : lora.parameters())
      one.detach().copy_(0.15 * at::randn(one.sizes()));
    const Tensor ours = full_logits(*frozen, as_tensor(tokens), &lora);
    EXPECT_GT(largest(ours, before), 0.1);
    ASSERT_TRUE(write_file(folder.file("lora.gguf"), std::span<const std::byte>(lora.file("tiny", "random"))).ok());
    const Result<std::unique_ptr<Model>> adapted = Model::load(
        {.path = folder.file("tiny.gguf"), .lora = folder.file("lora.gguf"), .n_threads = 1, .prompt_weights = "f32"});
    ASSERT_TRUE(adapted.ok()) << adapted.error().message;
    EXPECT_LT(largest(ours, engine_logits(**adapted, tokens)), 2e-3);
  }
}

struct Distance {
  double kld = 0, largest = 0, same_top = 0;
};

Distance distance_on_real_text(const std::string& path) {
  const std::unique_ptr<Model> model = opened(path);
  std::vector<Token> tokens = model->tokenize(test::real_text().substr(0, 4000), false, false);
  tokens.resize(256);
  const Tensor ours = at::log_softmax(our_logits(*model, tokens, at::kFloat).to(at::kDouble), 1);
  const Tensor engine = at::log_softmax(engine_logits(*model, tokens).to(at::kDouble), 1);
  const Distance out{.kld = (engine.exp() * (engine - ours)).sum(1).mean().item<double>(),
                     .largest = largest(ours, engine),
                     .same_top = at::eq(ours.argmax(1), engine.argmax(1)).to(at::kDouble).mean().item<double>()};
  std::printf("KL divergence %.2e nats, largest difference of log probabilities %.3f, same top %.3f\n", out.kld,
              out.largest, out.same_top);
  return out;
}

// The same weights and text: what products in bf16 move predictions by is less than what the engine's 8-bit activations
// do (below), and the gradient of a gate hardly turns.
TEST(RealForward, ProductsInBf16MoveLittle) {
  if (test::real_model_path().empty() || test::real_text().empty())
    GTEST_SKIP() << "no KEDGE_MODEL and KEDGE_TEXT";
  const std::unique_ptr<Model> model = opened(test::real_model_path());
  std::vector<Token> tokens = model->tokenize(test::real_text().substr(0, 4000), false, false);
  tokens.resize(192);
  Tensor log_weights[2];
  Gradients gradients[2];
  for (const bool bf16 : {false, true}) {
    const Result<FrozenModel> frozen = freeze(*model->impl().net, at::kFloat, bf16);
    ASSERT_TRUE(frozen.ok());
    const Tensor ids = as_tensor(tokens);
    log_weights[bf16] = at::log_softmax(full_logits(*frozen, ids).to(at::kDouble), 1);
    const gate::GateInfo info{.name = "g", .model = session::gate_model(*model->impl().net), .width = 0};
    const size_t n_embd = static_cast<size_t>(frozen->n_embd);
    const Standard as_they_come{.mean = std::vector<float>(n_embd), .scale = std::vector<float>(n_embd, 1.0F)};
    LearnedGate gate = LearnedGate::fresh(
        info, std::vector<Standard>(static_cast<size_t>(frozen->n_layers), as_they_come), 1, at::kFloat);
    gradients[bf16] = zero_gradients({.gate = gate});
    const PassOptions options{.pressure = Pressure::layer};
    const Lesson lesson{.tokens = ids, .weight = even_weight(192, options, frozen->options())};
    const FullReading full = read_in_full(*frozen, ids, {});
    (void)Pass(*frozen, options).run({.gate = gate}, lesson, &full, {.keep = 0.25, .seed = 3}, &gradients[bf16]);
  }
  const double kld = (log_weights[0].exp() * (log_weights[0] - log_weights[1])).sum(1).mean().item<double>();
  double product = 0, square[2] = {0, 0};
  for (size_t i = 0; i < gradients[0].gate.size(); ++i) {
    product += (gradients[0].gate[i] * gradients[1].gate[i]).sum().item<double>();
    for (int j = 0; j < 2; ++j)
      square[j] += gradients[j].gate[i].square().sum().item<double>();
  }
  const double cosine = product / std::sqrt(square[0] * square[1]);
  std::printf("bf16: KL divergence %.2e nats, cosine of gradients %.5f\n", kld, cosine);
  EXPECT_LT(kld, 3e-3);
  EXPECT_GT(kld, 0.0);
  EXPECT_GT(cosine, 0.98);
}

TEST(RealForward, PredictsPredictsWhatTheEngineDoes) {
  if (test::real_model_path().empty() || test::real_text().empty())
    GTEST_SKIP() << "no KEDGE_MODEL and KEDGE_TEXT";
  // With the weights as f32 nothing but the f16 of keys and values is between the two.
  const Distance f32 = distance_on_real_text(test::f32_model_path());
  EXPECT_LT(f32.kld, 1e-5);
  EXPECT_GT(f32.same_top, 0.99);
  // With the weights as they are, the engine rounds activations to 8 bits.
  const Distance quantised = distance_on_real_text(test::real_model_path());
  EXPECT_LT(quantised.kld, 0.015);
  EXPECT_GT(quantised.same_top, 0.9);
}

}  // namespace
}  // namespace kedge::lm
