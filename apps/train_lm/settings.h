// What `kedge train-gate --stage lm` was asked for.
#pragma once

#include <cstdint>
#include <string>

#include "cli/settings.h"
#include "kedge/error.h"
#include "train/settings.h"

namespace kedge::lm {

enum class Recompute { automatic, on, off };

struct LmSettings {
  train::TrainSettings texts;  // documents, windows, folder
  std::string gate_init;       // empty: a fresh gate of `width` hidden units
  int width = 80;
  int64_t steps = 400;
  int batch = 1;  // windows a step
  std::string loss;
  std::string pressure;
  std::string rows;
  std::string learns;  // append | ageing
  double keep = 0.25;
  double lambda = 10;
  double adversarial = 0.25;
  double rate = 1e-3;
  int lora = 0;  // rank of the adapter that learns beside the gate; 0: none
  double lora_rate = 3e-4;
  Recompute recompute = Recompute::automatic;
  std::string products;  // auto | f32 | bf16
  int64_t save_every = 10;
  int64_t judge_every = 50;
  int64_t patience = 6;
  int64_t judge_windows = 8;
  uint64_t seed = 1;
  int threads = 0;
  std::string budget() const;  // of the engine's judgement: "25%"
};

// Error usage: names the flag, what was found and what is allowed.
Result<LmSettings> lm_settings(const cli::Settings& settings);

}  // namespace kedge::lm
