// How far two equally valid computations of the same model are apart, with nothing evicted: the floor below which a KL
// divergence says nothing about eviction. Quantised weights re-quantise the activations, which amplifies every
// rounding; f32 weights do not.
#pragma once

#include "eval/cells.h"
#include "eval/records.h"

namespace kedge::eval {

// KLD of the full cache with the prompt's matrix products done the other way (`native` where the run has dequantised
// weights, `f32` where it has native ones) against the run's own, over the samples' continuations.
// {"kld_mean", "kld_max", "same_top", "n_windows", "what"}
Result<Json> measure_noise_floor(const Engine& engine, const Config& config, const ModelOptions& model,
                                 std::vector<Sample> samples);

}  // namespace kedge::eval
