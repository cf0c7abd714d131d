// The pass over a text that is evicted once: its attention from the formula, its features as the engine measures them,
// its gradients by central differences in f64.
#include "train_lm/late_pass.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "api/model_impl.h"
#include "eviction/ageing.h"
#include "session/model_identity.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"
#include "train_lm/central_differences.h"
#include "train_lm/late_features.h"
#include "train_lm/tail_attention.h"

namespace kedge::lm {
namespace {

using at::Tensor;
using gate::Feature;

constexpr int64_t kCut = 60;
constexpr int kTail = 20;
const std::vector<Feature> kLearned = {Feature::logit, Feature::window_max, Feature::window_mean, Feature::last_access,
                                       Feature::age,   Feature::key_norm,   Feature::value_norm,  Feature::anchor};

Tensor tokens_of(int n) {
  const std::vector<int32_t> ids = test::random_tokens(n, 9);
  Tensor out = at::empty({n}, at::kLong);
  std::copy(ids.begin(), ids.end(), out.data_ptr<int64_t>());
  return out;
}

struct Tiny {
  Tiny() {
    test::write_tiny_model(test::make_tiny_weights({.n_layers = 3,
                                                    .n_heads = 4,
                                                    .n_kv_heads = 2,
                                                    .head_dim = 16,
                                                    .n_embd = 32,
                                                    .n_ff = 48,
                                                    .n_vocab = 260,
                                                    .qk_gain = 1.6F}),
                           folder.file("tiny.gguf"));
    model = *Model::load({.path = folder.file("tiny.gguf"), .n_threads = 1});
    frozen = *freeze(*model->impl().net, at::kDouble);
    lesson = {.tokens = tokens_of(kCut + kTail), .cut = kCut, .weight = 1 + at::arange(kTail, at::kDouble) / 5};
    lesson.weight.div_(lesson.weight.sum());
  }
  // Random, of the first stage and of the second.
  LearnedGate append() const {
    const gate::GateInfo info{.name = "tiny", .model = session::gate_model(*model->impl().net), .width = 5};
    const std::vector<Standard> inputs(3,
                                       {.mean = std::vector<float>(32, 0.0F), .scale = std::vector<float>(32, 1.0F)});
    LearnedGate out = LearnedGate::fresh(info, inputs, 5, at::kDouble);
    at::manual_seed(11);
    for (Tensor& one : out.parameters())
      one.detach().copy_(0.5 * at::randn(one.sizes(), one.options().requires_grad(false)));
    return out;
  }
  gate::Ageing stage(int width) const {
    gate::Ageing stage{.info = {.features = kLearned, .width = width, .window = 12}, .layers = {}};
    at::manual_seed(7);
    const auto draw = [](int64_t n) {
      const Tensor values = 0.3 * at::randn({n}, at::kFloat);
      return std::vector<float>(values.data_ptr<float>(), values.data_ptr<float>() + n);
    };
    const auto n_features = static_cast<int64_t>(kLearned.size());
    for (int layer = 0; layer < 3; ++layer)
      stage.layers.push_back({.w1 = draw(2 * width * n_features),
                              .b1 = draw(2 * width),
                              .w2 = draw(2 * (width > 0 ? width : n_features)),
                              .b2 = draw(2)});
    return stage;
  }
  LateReading read(const LateOptions& options) const {
    const LearnedGate first = append();
    return read_late(frozen, lesson, &first, stage(4).info, options);
  }

  test::TempDir folder;
  std::unique_ptr<Model> model;
  FrozenModel frozen;
  LateLesson lesson;
};

LateOptions options_of(bool from_full, Pressure pressure) {
  return {.gated = {.window = 8, .sinks = 2}, .from_full = from_full, .pressure = pressure};
}

TEST(TailAttention, IsTheFormula) {
  at::manual_seed(3);
  const int64_t n = 23, m = 6, n_heads = 4, n_kv = 2, d = 8;
  const Tensor q = at::randn({m, n_heads, d}, at::kDouble), k = at::randn({n, n_kv, d}, at::kDouble),
               v = at::randn({n, n_kv, d}, at::kDouble);
  Tensor u = at::rand({n - m, n_kv}, at::kDouble);
  u[4][1] = 0;
  const Tensor found = tail_attention(q, k, v, u), ungated = tail_attention(q, k, v, {});
  for (int64_t t = 0; t < m; ++t) {
    for (int64_t h = 0; h < n_heads; ++h) {
      const int64_t kv = h / (n_heads / n_kv);
      for (const bool gates : {true, false}) {
        Tensor sum = at::zeros({d}, at::kDouble);
        double total = 0;
        for (int64_t i = 0; i <= n - m + t; ++i) {
          const double gate = gates && i < n - m ? u[i][kv].item<double>() : 1;
          const double weight = std::exp((q[t][h] * k[i][kv]).sum().item<double>()) * gate;
          sum += weight * v[i][kv];
          total += weight;
        }
        const Tensor own = (gates ? found : ungated)[t].slice(0, h * d, (h + 1) * d);
        EXPECT_LT((own - sum / total).abs().max().item<double>(), 1e-12);
      }
    }
  }
}

TEST(TailAttention, RowsThatAreGoneWithTheLargestLogitsLeaveFiniteGradients) {
  const Tensor q = at::ones({2, 1, 4}, at::kDouble), v = at::randn({9, 1, 4}, at::kDouble);
  Tensor k = at::zeros({9, 1, 4}, at::kDouble);
  k[3] = 500;  // gone, and far above all others
  Tensor u = at::ones({7, 1}, at::kDouble);
  u[3] = 0;
  u.requires_grad_(true);
  const Tensor out = tail_attention(q, k, v, u);
  EXPECT_TRUE(at::isfinite(out).all().item<bool>());
  out.sum().backward();
  EXPECT_TRUE(at::isfinite(u.grad()).all().item<bool>());
}

// What a session that evicts at the cut is shown of the same tokens.
TEST(LateFeatures, AreTheEngines) {
  const Tiny tiny;
  const FrozenModel frozen = *freeze(*tiny.model->impl().net, at::kFloat);
  const LearnedGate append = tiny.append();
  const gate::AgeingInfo info{
      .features = std::vector<Feature>(kLearned.begin() + 1, kLearned.end()), .width = 0, .window = 12};
  const LateReading reading = read_late(frozen, tiny.lesson, nullptr, info, options_of(true, Pressure::exact));
  SessionOptions options;
  options.budget = *parse_budget("50%");
  options.policy = "recent";
  options.order = PrefillOrder::layer_major;
  options.expected_prompt = kCut;
  options.expected_generated = 0;
  options.n_observed = 12;
  const session::Engine engine = tiny.model->impl().engine();
  const auto timeline = *session::Timeline::create(engine, options);
  int n_seen = 0;
  timeline->watch([&](const eviction::LayerInput& in) {
    for (const eviction::HeadInput& head : in.heads) {
      const std::vector<float> expected = eviction::ageing_features(head, info);
      const Tensor found = reading.features[static_cast<size_t>(head.layer)];
      for (int64_t i = 0; i < found.size(0); ++i) {
        for (int64_t f = 0; f < info.n_features(); ++f) {
          const double ours = found[i][head.head][f].item<double>();
          const auto theirs = static_cast<double>(expected[static_cast<size_t>((i + 2) * info.n_features() + f)]);
          const std::string name = gate::feature_name(info.features[static_cast<size_t>(f)]);
          if (name == "anchor")  // a difference: what is near zero has a logarithm of no meaning
            EXPECT_NEAR(std::exp(ours), std::exp(theirs), 2e-4 + 1e-2 * std::exp(theirs)) << i;
          else if (name != "last_access")  // which is counted, and a weight near the even share can fall on either side
            EXPECT_NEAR(ours, theirs, 1e-2) << name << " of row " << i + 2 << ", layer " << head.layer;
          else
            n_seen += std::abs(ours - theirs) < 1e-3 ? 1 : 0;
        }
      }
    }
  });
  const std::vector<int32_t> ids = test::random_tokens(kCut + kTail, 9);
  ASSERT_TRUE(timeline->prefill(std::span(ids).first(kCut), {}).ok());
  EXPECT_GE(n_seen, 0.98 * 3 * 2 * static_cast<double>(reading.features[0].size(0)));
}

TEST(LatePass, WithEveryRowKeptIsTheFullCache) {
  const Tiny tiny;
  const LateOptions options = options_of(true, Pressure::exact);
  const LateReading reading = tiny.read(options);
  const LearnedAgeing stage(tiny.stage(4), reading.features);
  const PassResult open = run_late(tiny.frozen, stage, tiny.lesson, reading, options,
                                   {.keep = 1, .tau = 0.01, .anneal = 1, .noise = 0}, nullptr);
  EXPECT_NEAR(open.keep, 1, 1e-9);
  EXPECT_NEAR(open.lm_loss, 0, 1e-12);
  double last = 0;
  for (const double keep : {0.6, 0.3, 0.05}) {
    const PassResult some = run_late(tiny.frozen, stage, tiny.lesson, reading, options,
                                     {.keep = keep, .tau = 0.1, .anneal = 1, .noise = 0}, nullptr);
    EXPECT_NEAR(some.keep, keep, 0.02);
    EXPECT_GT(some.lm_loss, last);
    last = some.lm_loss;
  }
}

struct Setting {
  const char* name;
  LateOptions options;
  Draw draw;
  int width = 4;
  friend void PrintTo(const Setting& one, std::ostream* out) { *out << one.name; }
};

class LateGradients : public testing::TestWithParam<Setting> {};

TEST_P(LateGradients, AreCentralDifferences) {
  const Setting& setting = GetParam();
  const Tiny tiny;
  const LateReading reading = tiny.read(setting.options);
  LearnedAgeing stage(tiny.stage(setting.width), reading.features);
  const auto loss_of = [&](std::vector<Tensor>* gradients) {
    return run_late(tiny.frozen, stage, tiny.lesson, reading, setting.options, setting.draw, gradients).loss;
  };
  std::vector<Tensor> gradients;
  for (const Tensor& one : stage.parameters())
    gradients.push_back(at::zeros_like(one.detach()));
  const double loss = loss_of(&gradients);
  EXPECT_NEAR(loss_of(nullptr), loss, 1e-12) << "with and without gradients";
  EXPECT_GT(loss, 1e-4);
  expect_central_differences(stage.parameters(), gradients, [&] { return loss_of(nullptr); });
}

INSTANTIATE_TEST_SUITE_P(
    Settings, LateGradients,
    testing::Values(Setting{"kl_exact", options_of(true, Pressure::exact), {.keep = 0.4, .seed = 3}},
                    Setting{"ce_exact", options_of(false, Pressure::exact), {.keep = 0.4, .tau = 0.7, .seed = 4}},
                    Setting{"kl_layer", options_of(true, Pressure::layer), {.keep = 0.4, .seed = 5}},
                    Setting{"linear", options_of(true, Pressure::exact), {.keep = 0.3, .seed = 6}, 0}),
    [](const testing::TestParamInfo<Setting>& one) { return one.param.name; });

TEST(LearnedAgeing, IsTheStageItCameFromAndGoesBackToIt) {
  const Tiny tiny;
  const LateReading reading = tiny.read(options_of(true, Pressure::exact));
  for (const int width : {4, 0}) {
    const gate::Ageing stage = tiny.stage(width);
    const LearnedAgeing learned(stage, reading.features);
    const LearnedAgeing again(stage, learned.standards(), 2, at::kDouble);
    const gate::Ageing back = learned.to_ageing();
    for (int layer = 0; layer < 3; ++layer) {
      const Tensor& features = reading.features[static_cast<size_t>(layer)];
      const Tensor ours = learned.logits(layer, features).detach();
      EXPECT_LT((again.logits(layer, features).detach() - ours).abs().max().item<double>(), 1e-4);
      for (int head = 0; head < 2; ++head) {
        const Tensor rows = features.select(1, head).to(at::kFloat).contiguous();
        const std::span<const float> plain(rows.data_ptr<float>(), static_cast<size_t>(rows.numel()));
        for (const gate::Ageing* of : {&stage, &back}) {
          const std::vector<float> expected = gate::ageing_logits(*of, {.layer = layer, .head = head}, plain);
          for (size_t i = 0; i < expected.size(); ++i)
            EXPECT_NEAR(ours[static_cast<int64_t>(i)][head].item<double>(), expected[i], 1e-4);
        }
      }
    }
  }
}

}  // namespace
}  // namespace kedge::lm
