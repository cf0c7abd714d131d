// What `kedge train-gate` was asked for.
#pragma once

#include <string>
#include <vector>

#include "cli/settings.h"
#include "kedge/error.h"
#include "train/collect.h"
#include "train/fit_gate.h"
#include "train/plan.h"

namespace kedge::train {

struct TrainSettings {
  std::vector<std::string> documents;  // paths
  std::vector<std::string> held_out;   // file names
  std::string out;
  std::string label_name;
  std::vector<GateInput> inputs;
  std::string gate_init;  // whose append stage is taken; empty: one is fitted
  std::string progress;
  PlanOptions plan;
  CollectOptions collect;
  FitOptions fit;
};

std::string input_name(GateInput input);
std::string gate_name(GateInput input, int width);  // "mlp" of hidden, "window-mlp", "access-linear"
std::string gate_file(GateInput input, int width);  // in the folder: "gate-window-mlp.gguf"

// Error usage: names the flag, what was found and what is allowed.
Result<TrainSettings> train_settings(const cli::Settings& settings);

}  // namespace kedge::train
