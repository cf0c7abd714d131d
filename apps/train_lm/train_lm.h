// kedge train-gate --stage lm: a gate that learns through the model.
#pragma once

#include "cli/settings.h"
#include "kedge/error.h"

namespace kedge::lm {

// Trains, or goes on; leaves gate-lm.gguf, lora.gguf where --lm-lora asks for it, and the reports in --gate-out.
Status train_lm(const cli::Settings& settings);

}  // namespace kedge::lm
