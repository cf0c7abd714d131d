// The numbers that are kept of each step (TrainState::steps): these, then the keep rate of each layer.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace kedge::lm {

enum StepColumn : size_t {
  kColumnStep,
  kColumnLoss,
  kColumnLmLoss,
  kColumnLevel,
  kColumnWantedKeep,
  kColumnKeep,
  kColumnTau,
  kColumnAnneal,
  kColumnRate,
  kColumnNorm,
  kColumnAdversarial,
  kColumnSeconds,
  kStepColumns
};

std::vector<std::string> step_columns(int n_layers);

}  // namespace kedge::lm
