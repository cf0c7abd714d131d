// A text whose cache is evicted once, at a cut, by what an ageing stage says of the rows there: what that costs the
// predictions behind the cut, and how each weight of the stage changes it. What comes before the cut is the full
// cache's, so features are constants, and only the tail is computed with gates in the way.
#pragma once

#include <ATen/Tensor.h>

#include <vector>

#include "train_lm/frozen_model.h"
#include "train_lm/learned_ageing.h"
#include "train_lm/learned_gate.h"
#include "train_lm/pass.h"

namespace kedge::lm {

struct LateLesson {
  at::Tensor tokens;  // i64 [cut + tail]
  int64_t cut = 0;    // more than the window and the sinks
  at::Tensor weight;  // [tail], sum 1: how much the prediction at each position behind the cut counts
};

struct LateReading {
  at::Tensor hidden;                 // [tail, n_embd] of the full cache: what the output matrix is multiplied with
  std::vector<LayerRows> before;     // [layer] of the tokens before the cut: k and v
  std::vector<at::Tensor> features;  // [layer] [n_gated, n_kv_heads, n_features]
};

struct LateOptions {
  GatedRows gated;
  bool from_full = true;                // loss: KL to the full cache, else the cross-entropy of the text
  Pressure pressure = Pressure::exact;  // of all layers or of each; there is no penalty
  // Rows that a gate decides about: [sinks, sinks + n_gated).
  int64_t n_gated(const LateLesson& lesson) const { return gated.n_gated(lesson.cut); }
};

// append: the first stage, whose logit may be a feature; nullptr: there is none.
LateReading read_late(const FrozenModel& model, const LateLesson& lesson, const LearnedGate* append,
                      const gate::AgeingInfo& info, const LateOptions& options);

// gradients: as many as the stage's parameters, added to; nullptr: none wanted.
PassResult run_late(const FrozenModel& model, const LearnedAgeing& stage, const LateLesson& lesson,
                    const LateReading& reading, const LateOptions& options, const Draw& draw,
                    std::vector<at::Tensor>* gradients);

}  // namespace kedge::lm
