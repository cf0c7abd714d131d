// Gradients of whole passes against central differences, in f64 on tiny models.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "api/model_impl.h"
#include "session/model_identity.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"
#include "train_lm/central_differences.h"
#include "train_lm/pass.h"

namespace kedge::lm {
namespace {

using at::Tensor;

struct Tiny {
  explicit Tiny(bool tied) {
    test::write_tiny_model(test::make_tiny_weights({.n_layers = 3,
                                                    .n_heads = 4,
                                                    .n_kv_heads = 2,
                                                    .head_dim = 16,
                                                    .n_embd = 32,
                                                    .n_ff = 48,
                                                    .n_vocab = 260,
                                                    .tied = tied}),
                           folder.file("tiny.gguf"));
    model = *Model::load({.path = folder.file("tiny.gguf"), .n_threads = 1});
    frozen = *freeze(*model->impl().net, at::kDouble);
  }
  LearnedGate gate(int width) const {
    const gate::GateInfo info{.name = "tiny", .model = session::gate_model(*model->impl().net), .width = width};
    std::vector<Standard> inputs;
    for (int layer = 0; layer < frozen.n_layers; ++layer) {
      Standard one;
      for (int i = 0; i < frozen.n_embd; ++i) {
        one.mean.push_back(0.1F * static_cast<float>(i % 5));
        one.scale.push_back(i == 7 ? 0.0F : 0.5F + 0.1F * static_cast<float>(i % 3));
      }
      inputs.push_back(std::move(one));
    }
    LearnedGate out = LearnedGate::fresh(info, std::move(inputs), 5, at::kDouble);
    at::manual_seed(11);
    for (Tensor& one : out.parameters())
      one.detach().copy_(0.5 * at::randn(one.sizes(), one.options().requires_grad(false)));
    return out;
  }
  LearnedLora lora(int rank) const {
    LearnedLora out = LearnedLora::fresh(frozen, rank, 6, at::kDouble);
    at::manual_seed(12);
    for (Tensor& one : out.parameters())  // A and B, which begins with zeros
      one.detach().copy_(0.2 * at::randn(one.sizes(), one.options().requires_grad(false)));
    return out;
  }
  test::TempDir folder;
  std::unique_ptr<Model> model;
  FrozenModel frozen;
};

struct Setting {
  const char* name;
  PassOptions options;
  Draw draw;
  int width = 5;
  bool tied = false;
  int lora = 0;
  friend void PrintTo(const Setting& one, std::ostream* out) { *out << one.name; }
};

class GradientsOfAPass : public testing::TestWithParam<Setting> {};

Tensor tokens_of(int n) {
  const std::vector<int32_t> ids = test::random_tokens(n, 9);
  Tensor out = at::empty({n}, at::kLong);
  std::copy(ids.begin(), ids.end(), out.data_ptr<int64_t>());
  return out;
}

double loss_of(const Tiny& tiny, const Learned& learned, const Setting& setting, Gradients* gradients) {
  const Pass pass(tiny.frozen, setting.options);
  Lesson lesson{.tokens = tokens_of(90), .weight = even_weight(90, setting.options, tiny.frozen.options())};
  lesson.weight = lesson.weight * (1 + at::arange(90, at::kDouble) / 30);  // positions do not count alike
  const FullReading full =
      read_in_full(tiny.frozen, lesson.tokens, {.gate = &learned.gate, .rows = setting.options.full_rows});
  return pass.run(learned, lesson, &full, setting.draw, gradients).loss;
}

TEST_P(GradientsOfAPass, AreCentralDifferences) {
  const Setting& setting = GetParam();
  const Tiny tiny(setting.tied);
  LearnedGate gate = tiny.gate(setting.width);
  LearnedLora lora = tiny.lora(setting.lora);
  const Learned learned{.gate = gate, .lora = &lora};
  Gradients by = zero_gradients(learned);
  const double loss = loss_of(tiny, learned, setting, &by);
  EXPECT_NEAR(loss_of(tiny, learned, setting, nullptr), loss, 1e-12) << "with and without gradients";
  std::vector<Tensor> parameters = gate.parameters(), gradients = by.gate;  // the leaves themselves
  parameters.insert(parameters.end(), lora.parameters().begin(), lora.parameters().end());
  gradients.insert(gradients.end(), by.lora.begin(), by.lora.end());
  ASSERT_EQ(by.lora.size(), setting.lora > 0 ? 3 * LearnedLora::kPerLayer : 0);
  EXPECT_GT(loss, 1e-4);
  expect_central_differences(parameters, gradients, [&] { return loss_of(tiny, learned, setting, nullptr); });
}

PassOptions options_of(bool from_full, Pressure pressure, bool full_rows = false, bool recompute = false) {
  return {.gated = {.window = 8, .sinks = 2},
          .from_full = from_full,
          .pressure = pressure,
          .lambda = 3,
          .full_rows = full_rows,
          .recompute = recompute};
}

INSTANTIATE_TEST_SUITE_P(
    Settings, GradientsOfAPass,
    testing::Values(
        Setting{"kl_penalty", options_of(true, Pressure::penalty), {.keep = 0.3, .seed = 1}},
        Setting{"ce_penalty", options_of(false, Pressure::penalty), {.keep = 0.3, .seed = 2}},
        Setting{"kl_exact", options_of(true, Pressure::exact), {.keep = 0.4, .seed = 3}},
        Setting{"ce_exact", options_of(false, Pressure::exact), {.keep = 0.4, .tau = 0.7, .seed = 4}},
        Setting{"kl_layer", options_of(true, Pressure::layer), {.keep = 0.4, .seed = 5}},
        Setting{"kl_full_rows", options_of(true, Pressure::exact, true), {.keep = 0.4, .seed = 6}},
        Setting{"ce_full_rows_layer", options_of(false, Pressure::layer, true), {.keep = 0.5, .seed = 7}},
        Setting{"linear_gate", options_of(true, Pressure::exact), {.keep = 0.4, .seed = 8}, 0},
        Setting{"tied", options_of(true, Pressure::penalty), {.keep = 0.3, .seed = 9}, 5, true},
        Setting{"lora_exact", options_of(true, Pressure::exact), {.keep = 0.4, .seed = 3}, 5, false, 3},
        Setting{"lora_layer_ce", options_of(false, Pressure::layer), {.keep = 0.4, .seed = 5}, 5, true, 2},
        Setting{
            "lora_recomputed", options_of(true, Pressure::penalty, false, true), {.keep = 0.3, .seed = 1}, 5, false, 1},
        Setting{"recomputed", options_of(true, Pressure::exact, false, true), {.keep = 0.4, .seed = 3}}),
    [](const testing::TestParamInfo<Setting>& one) { return one.param.name; });

TEST(PassGradients, RecomputingLayersChangesNoBit) {
  const Tiny tiny(false);
  const LearnedGate gate = tiny.gate(5);
  const LearnedLora lora = tiny.lora(2);
  const Learned learned{.gate = gate, .lora = &lora};
  Gradients gradients[2];
  for (const bool recompute : {false, true}) {
    gradients[recompute] = zero_gradients(learned);
    loss_of(tiny, learned, {"", options_of(true, Pressure::layer, false, recompute), {.keep = 0.4, .anneal = 0.5}},
            &gradients[recompute]);
  }
  for (size_t i = 0; i < gradients[0].gate.size(); ++i)
    EXPECT_TRUE(at::equal(gradients[0].gate[i], gradients[1].gate[i])) << i;
  for (size_t i = 0; i < gradients[0].lora.size(); ++i)
    EXPECT_TRUE(at::equal(gradients[0].lora[i], gradients[1].lora[i])) << i;
}

TEST(PassKeep, ExactPressureKeepsWhatItSays) {
  const Tiny tiny(false);
  const LearnedGate gate = tiny.gate(5);
  const Lesson lesson{.tokens = tokens_of(90), .weight = even_weight(90, {}, tiny.frozen.options())};
  const FullReading full = read_in_full(tiny.frozen, lesson.tokens, {.gate = &gate, .rows = true});
  for (const double keep : {0.1, 0.5, 0.8}) {
    for (const double anneal : {0.0, 0.5, 1.0}) {
      const Draw draw{.keep = keep, .tau = 0.5, .anneal = anneal, .seed = 4};
      // Rows of the full reading: gates of the pass see what the shift was found for.
      EXPECT_NEAR(Pass(tiny.frozen, options_of(true, Pressure::exact, true))
                      .run({.gate = gate}, lesson, &full, draw, nullptr)
                      .keep,
                  keep, 3e-3);
      const PassResult by_layer =
          Pass(tiny.frozen, options_of(true, Pressure::layer)).run({.gate = gate}, lesson, &full, draw, nullptr);
      for (const double one : by_layer.layer_keep)
        EXPECT_NEAR(one, keep, 6e-3);
    }
  }
}

TEST(LearnedGate, IsTheGateItCameFromAndGoesBackToIt) {
  const Tiny tiny(false);
  for (const int width : {5, 0}) {
    const gate::Gate gate = tiny.gate(width).to_gate();
    const LearnedGate again(gate, tiny.gate(width).inputs(), at::kDouble);
    const gate::Gate back = again.to_gate();
    at::manual_seed(2);
    const Tensor x = at::randn({20, 32}, at::kFloat);
    const std::span<const float> rows(x.data_ptr<float>(), static_cast<size_t>(x.numel()));
    for (int layer = 0; layer < 3; ++layer) {
      const auto at_layer = static_cast<size_t>(layer);
      const std::vector<float> plain = gate::gate_logits(gate.info, gate.layers[at_layer], rows);
      const std::vector<float> plain_back = gate::gate_logits(back.info, back.layers[at_layer], rows);
      const Tensor ours = again.logits(layer, x.to(at::kDouble)).detach().contiguous();
      ASSERT_EQ(static_cast<size_t>(ours.numel()), plain.size());
      for (size_t i = 0; i < plain.size(); ++i) {
        EXPECT_NEAR(ours.data_ptr<double>()[i], plain[i], 1e-4);
        EXPECT_NEAR(plain_back[i], plain[i], 1e-4);
      }
    }
  }
}

}  // namespace
}  // namespace kedge::lm
