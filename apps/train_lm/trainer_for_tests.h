// For tests: a training on tiny texts.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "api/model_impl.h"
#include "train_lm/threads.h"
#include "train_lm/tiny_lesson.h"
#include "train_lm/trainer.h"

namespace kedge::lm {

inline LmSettings settings_of(const TinyLesson& lesson, const std::string& out) {
  std::filesystem::create_directories(lesson.folder.file(out));
  LmSettings s;
  s.texts = {.documents = {lesson.document("learn.txt"), lesson.document("judge.txt")},
             .held_out = {"judge.txt"},
             .out = lesson.folder.file(out),
             .label_name = {},
             .progress = "none",
             .plan = {.n_tokens = 9000, .lengths = {192, 256}},
             .collect = {.labels = {.window = 16}},
             .fit = {}};
  s.width = 12;
  s.steps = 50;
  s.loss = "kl";
  s.pressure = "exact";
  s.rows = "own";
  s.learns = "append";
  s.rate = 5e-3;
  s.products = "f32";
  s.judge_every = 25;
  s.judge_windows = 3;
  s.patience = 0;
  s.save_every = 4;
  return s;
}

struct Training {
  explicit Training(const LmSettings& settings) {
    use_threads(1);
    model = *Model::load({.path = settings.texts.out + "/../tiny.gguf", .n_threads = 1});
    text = *train::read_documents(settings.texts.documents, settings.texts.held_out, *model->impl().tokenizer);
    Result<std::unique_ptr<Trainer>> made =
        Trainer::create({.model = *model,
                         .text = text,
                         .windows = train::plan_windows(text.sizes, settings.texts.plan),
                         .settings = settings});
    if (made)
      trainer = *std::move(made);
    else
      error = made.error();
  }
  // Stops after `most` steps.
  Status run(int64_t most = 1000) {
    int64_t n = 0;
    return trainer->run([&](const StepReport&) { ++n; }, [](int64_t, double, double) {}, [&] { return n >= most; });
  }
  std::vector<std::byte> gate() const { return gate::gate_bytes(*trainer->best_gate()); }

  std::unique_ptr<Model> model;
  train::Text text;
  std::unique_ptr<Trainer> trainer;
  Error error;
};

}  // namespace kedge::lm
