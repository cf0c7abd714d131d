#include "train_lm/trainer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "train_lm/step_columns.h"
#include "train_lm/trainer_for_tests.h"

namespace kedge::lm {
namespace {

double judgement(const TrainState& state, size_t which, bool by_engine) {
  return state.judgements[3 * which + (by_engine ? 2 : 1)];
}

TEST(Trainer, FiftyStepsMakeTheLossFall) {
  const TinyLesson lesson;
  Training training(settings_of(lesson, "out"));
  ASSERT_NE(training.trainer, nullptr) << training.error.message;
  ASSERT_TRUE(training.run().ok());
  const TrainState& state = training.trainer->state();
  ASSERT_EQ(state.judgements.size(), 9U);  // at the start, after 25 and after 50 steps
  std::printf("KL divergence at 25 %% kept, in training %.4f to %.4f, by the engine %.4f to %.4f\n",
              judgement(state, 0, false), judgement(state, 2, false), judgement(state, 0, true),
              judgement(state, 2, true));
  EXPECT_LT(judgement(state, 2, false), 0.8 * judgement(state, 0, false));
  EXPECT_LT(state.best_kld, state.start_kld);
  EXPECT_EQ(state.step, 50);
  EXPECT_EQ(state.steps.size(), 50 * (kStepColumns + 2));
  EXPECT_GT(state.flops, 1e9);
  const gate::Gate gate = *training.trainer->best_gate();
  EXPECT_EQ(gate.thresholds.size(), 9U);
  EXPECT_NEAR(static_cast<double>(gate.thresholds[4].threshold), 0.5, 1e-6) << "half of the rows lie above";
  EXPECT_NE(gate.info.training_loss.find("KL divergence"), std::string::npos);
  EXPECT_EQ(gate.info.window, 16);
}

TEST(Trainer, AnAdapterBesideTheGateMakesItFallFurther) {
  const TinyLesson lesson;
  Training alone(settings_of(lesson, "alone"));
  ASSERT_TRUE(alone.run().ok());
  EXPECT_TRUE(alone.trainer->best_lora().empty());
  LmSettings settings = settings_of(lesson, "both");
  settings.lora = 4;
  settings.lora_rate = 5e-3;
  Training both(settings);
  ASSERT_NE(both.trainer, nullptr) << both.error.message;
  EXPECT_GT(both.trainer->n_parameters(), alone.trainer->n_parameters());
  ASSERT_TRUE(both.run().ok());
  const TrainState& with = both.trainer->state();
  const TrainState& without = alone.trainer->state();
  std::printf("KL divergence by the engine %.4f to %.4f, without an adapter to %.4f\n", with.start_kld, with.best_kld,
              without.best_kld);
  EXPECT_EQ(with.start_kld, without.start_kld) << "an adapter begins as nothing";
  EXPECT_LT(with.best_kld, 0.95 * without.best_kld);
  EXPECT_EQ(both.model->impl().net->lora(), nullptr) << "the model is left as it was";

  // The best files, judged once more: what was said of them.
  const std::vector<std::byte> file = both.trainer->best_lora();
  const std::string gate_path = settings.texts.out + "/gate.gguf", lora_path = settings.texts.out + "/lora.gguf";
  const gate::Gate gate = *both.trainer->best_gate();
  EXPECT_NE(gate.info.training_loss.find("LoRA adapter of rank 4"), std::string::npos);
  const auto windows = train::plan_windows(both.text.sizes, settings.texts.plan);
  std::vector<std::span<const Token>> judged;
  for (const train::Window& window : windows) {
    if (window.held_out)
      judged.push_back(tokens_of(both.text, window));
  }
  Judge judge(*both.model, judged, {.budget = settings.budget()});
  const double said = *judge.kld({.gate = gate, .gate_path = gate_path, .lora = file, .lora_path = lora_path});
  const double gate_alone = *judge.kld({.gate = gate, .gate_path = gate_path});
  EXPECT_LT(said, gate_alone) << "the adapter is in use when it is judged";
}

TEST(Trainer, GoesOnAsIfItHadNotBeenStopped) {
  const TinyLesson lesson;
  LmSettings settings = settings_of(lesson, "whole");
  settings.lora = 2;
  settings.steps = 16;
  settings.judge_every = 5;
  settings.adversarial = 0.6;
  Training whole(settings);
  ASSERT_TRUE(whole.run().ok());
  settings.texts.out = settings_of(lesson, "stopped").texts.out;
  for (const int64_t most : {1, 5, 3}) {
    Training part(settings);
    ASSERT_NE(part.trainer, nullptr) << part.error.message;
    const Status status = part.run(most);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::cancelled);
  }
  Training last(settings);
  EXPECT_EQ(last.trainer->state().step, 9);
  ASSERT_TRUE(last.run().ok());
  EXPECT_EQ(last.gate(), whole.gate());
  EXPECT_EQ(last.trainer->best_lora(), whole.trainer->best_lora());
  EXPECT_EQ(last.trainer->state().parameters, whole.trainer->state().parameters);
  EXPECT_EQ(last.trainer->state().lora, whole.trainer->state().lora);
  EXPECT_EQ(last.trainer->state().lora_second, whole.trainer->state().lora_second);
  EXPECT_EQ(last.trainer->state().judgements, whole.trainer->state().judgements);
  // A training that is over says the same again.
  Training again(settings);
  ASSERT_TRUE(again.run(0).ok());
  EXPECT_EQ(again.gate(), whole.gate());
}

TEST(Trainer, EveryWayOfTrainingRuns) {
  const TinyLesson lesson;
  int n = 0;
  for (const char* pressure : {"exact", "layer", "penalty"}) {
    for (const char* rows : {"own", "full"}) {
      LmSettings settings = settings_of(lesson, "out" + std::to_string(n));
      settings.steps = 4;
      settings.pressure = pressure;
      settings.rows = rows;
      settings.loss = n % 2 == 0 ? "ce" : "kl";
      settings.products = n == 3 ? "bf16" : "f32";
      settings.recompute = n % 3 == 0 ? Recompute::on : Recompute::off;
      settings.batch = 1 + n % 2;
      settings.width = n == 4 ? 0 : 12;
      Training training(settings);
      ASSERT_NE(training.trainer, nullptr) << training.error.message;
      ASSERT_TRUE(training.run().ok()) << pressure << " " << rows;
      EXPECT_EQ(training.trainer->best_gate()->info.width, settings.width);
      ++n;
    }
  }
}

TEST(Trainer, EndsWhenNothingBetterComes) {
  const TinyLesson lesson;
  LmSettings settings = settings_of(lesson, "out");
  settings.rate = 1e-9;  // nothing is learned
  settings.judge_every = 2;
  settings.patience = 3;
  Training training(settings);
  ASSERT_TRUE(training.run().ok());
  EXPECT_TRUE(training.trainer->state().is_over);
  EXPECT_LT(training.trainer->state().step, 50);
  EXPECT_EQ(training.trainer->state().n_worse, 3);
}

TEST(Trainer, BeginsWithTheGateThatIsGiven) {
  const TinyLesson lesson;
  LmSettings settings = settings_of(lesson, "first");
  settings.steps = 6;
  Training first(settings);
  ASSERT_TRUE(first.run().ok());
  const std::string path = lesson.folder.file("first.gguf");
  ASSERT_TRUE(gate::save_gate(*first.trainer->best_gate(), path).ok());
  const double best = first.trainer->state().best_kld;
  settings = settings_of(lesson, "second");
  settings.steps = 1;
  settings.gate_init = path;
  settings.width = 99;  // the file's counts
  Training second(settings);
  ASSERT_NE(second.trainer, nullptr) << second.error.message;
  ASSERT_TRUE(second.run().ok());
  // The file holds it rounded to 8 bits.
  EXPECT_NEAR(second.trainer->state().start_kld, best, 0.1 * best);
  EXPECT_EQ(second.trainer->gate_info().width, 12);
}

TEST(Trainer, WhatDoesNotBelongIsRefused) {
  const TinyLesson lesson;
  LmSettings settings = settings_of(lesson, "out");
  settings.steps = 8;
  {
    Training training(settings);
    ASSERT_FALSE(training.run(2).ok());
  }
  LmSettings other = settings;
  other.lora = 2;
  EXPECT_EQ(Training(other).error.code, ErrorCode::usage);
  other = settings;
  other.seed = 2;
  EXPECT_EQ(Training(other).error.code, ErrorCode::usage);
  EXPECT_NE(Training(other).error.message.find("lm-state.bin"), std::string::npos);
  other = settings;
  other.gate_init = lesson.model();
  EXPECT_EQ(Training(other).error.code, ErrorCode::model_unreadable);
  gate::Gate aged{.info = Training(settings).trainer->gate_info(), .layers = {}};
  aged.info.input = "none";
  aged.info.width = 0;
  aged.ageing.info = {.features = {gate::Feature::age}, .width = 0, .window = 8};
  for (int layer = 0; layer < aged.info.model.n_layers; ++layer)
    aged.ageing.layers.push_back({.w1 = {}, .b1 = {}, .w2 = {1, 1}, .b2 = {0, 0}});
  other.gate_init = lesson.folder.file("aged.gguf");
  ASSERT_TRUE(gate::save_gate(aged, other.gate_init).ok());
  EXPECT_EQ(Training(other).error.code, ErrorCode::usage);
  EXPECT_NE(Training(other).error.message.find("'none', allowed 'hidden'"), std::string::npos);
  const std::string state = settings.texts.out + "/lm-state.bin";
  std::filesystem::resize_file(state, std::filesystem::file_size(state) / 2);
  EXPECT_EQ(Training(settings).error.code, ErrorCode::failed);
  EXPECT_NE(Training(settings).error.message.find("checksum"), std::string::npos);
}

}  // namespace
}  // namespace kedge::lm
