// The training of an ageing stage: it learns, the first stage stays, a training that was stopped goes on.
#include <gtest/gtest.h>

#include <random>

#include "train_lm/trainer_for_tests.h"

namespace kedge::lm {
namespace {

using gate::Feature;

// A first stage that nothing has taught, and an ageing stage of random weights; the file's path.
std::string write_gate(const TinyLesson& lesson, const char* name, const std::vector<Feature>& features) {
  LmSettings settings = settings_of(lesson, std::string("first-") + name);
  settings.steps = 1;
  Training first(settings);
  EXPECT_TRUE(first.run().ok());
  gate::Gate gate = *first.trainer->best_gate();
  gate.ageing.info = {.features = features, .width = features.empty() ? 0 : 6, .window = features.empty() ? 0 : 16};
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 0.3F);
  const auto draw = [&](size_t n) {
    std::vector<float> out(n);
    std::ranges::generate(out, [&] { return normal(random); });
    return out;
  };
  for (int layer = 0; !features.empty() && layer < gate.info.model.n_layers; ++layer)
    gate.ageing.layers.push_back({draw(12 * features.size()), draw(12), draw(12), draw(2)});
  std::string path = lesson.folder.file(name);
  EXPECT_TRUE(gate::save_gate(gate, path).ok());
  return path;
}

LmSettings late_settings(const TinyLesson& lesson, const char* out, const std::string& gate_init) {
  LmSettings settings = settings_of(lesson, out);
  settings.learns = "ageing";
  settings.gate_init = gate_init;
  settings.rate = 2e-2;
  return settings;
}

const std::vector<Feature> kWindow = {Feature::logit, Feature::window_max, Feature::window_mean, Feature::last_access,
                                      Feature::age,   Feature::key_norm,   Feature::value_norm,  Feature::anchor};

TEST(LateTrainer, TheStageLearnsAndTheFirstStays) {
  const TinyLesson lesson;
  const std::string from = write_gate(lesson, "from.gguf", kWindow);
  LmSettings settings = late_settings(lesson, "out", from);
  settings.steps = 80;
  settings.judge_every = 40;
  settings.judge_windows = 6;
  Training training(settings);
  ASSERT_NE(training.trainer, nullptr) << training.error.message;
  ASSERT_TRUE(training.run().ok());
  const TrainState& state = training.trainer->state();
  std::printf("KL divergence at 25 %% kept, in training %.4f to %.4f, by the engine %.4f to %.4f\n",
              state.judgements[1], state.judgements[7], state.judgements[2], state.judgements[8]);
  EXPECT_LT(state.judgements[7], 0.8 * state.judgements[1]);
  EXPECT_LT(state.best_kld, state.start_kld);
  const auto file = tensor::GgufFile::open(from);
  const gate::Gate before = *gate::read_gate(**file);
  const gate::Gate after = *training.trainer->best_gate();
  ASSERT_EQ(after.layers.size(), before.layers.size());
  EXPECT_EQ(after.layers[1].w1, before.layers[1].w1);
  EXPECT_EQ(after.info.ranks, "model") << "one shift for all heads";
  EXPECT_EQ(after.ageing.info.features, before.ageing.info.features);
  EXPECT_NE(after.ageing.layers[1].w1, before.ageing.layers[1].w1);
  EXPECT_NE(after.info.training_loss.find("then the ageing stage on KL divergence"), std::string::npos);
  EXPECT_EQ(training.trainer->n_parameters(), 2 * (12 * 8 + 12 + 12 + 2));
}

TEST(LateTrainer, GoesOnAsIfItHadNotBeenStopped) {
  const TinyLesson lesson;
  const std::string from = write_gate(lesson, "from.gguf", kWindow);
  for (const char* pressure : {"exact", "layer"}) {
    LmSettings settings = late_settings(lesson, (std::string("whole-") + pressure).c_str(), from);
    settings.steps = 14;
    settings.judge_every = 5;
    settings.adversarial = 0.6;
    settings.pressure = pressure;
    settings.loss = pressure == std::string("layer") ? "ce" : "kl";
    Training whole(settings);
    ASSERT_TRUE(whole.run().ok());
    settings.texts.out = late_settings(lesson, (std::string("stopped-") + pressure).c_str(), from).texts.out;
    for (const int64_t most : {1, 5, 3}) {
      Training part(settings);
      ASSERT_NE(part.trainer, nullptr) << part.error.message;
      EXPECT_EQ(part.run(most).error().code, ErrorCode::cancelled);
    }
    Training last(settings);
    EXPECT_EQ(last.trainer->state().step, 9);
    ASSERT_TRUE(last.run().ok());
    EXPECT_EQ(last.gate(), whole.gate());
    EXPECT_EQ(last.trainer->state().parameters, whole.trainer->state().parameters);
  }
}

TEST(LateTrainer, WhatItCannotBeginWithIsRefused) {
  const TinyLesson lesson;
  const auto refused = [&](const std::string& from, const char* text) {
    const Training training(late_settings(lesson, "out", from));
    EXPECT_EQ(training.trainer, nullptr);
    EXPECT_EQ(training.error.code, ErrorCode::usage);
    EXPECT_NE(training.error.message.find(text), std::string::npos) << training.error.message;
  };
  refused("", "--gate-init FILE");
  refused(write_gate(lesson, "first.gguf", {}), "without an ageing stage");
  refused(write_gate(lesson, "past.gguf", {Feature::age, Feature::past}), "'past', which only a session records");
}

}  // namespace
}  // namespace kedge::lm
