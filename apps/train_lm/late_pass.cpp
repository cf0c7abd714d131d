#include "train_lm/late_pass.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include "base/check.h"
#include "train_lm/late_features.h"

namespace kedge::lm {

using at::Tensor;

LateReading read_late(const FrozenModel& model, const LateLesson& lesson, const LearnedGate* append,
                      const gate::AgeingInfo& info, const LateOptions& options) {
  const c10::NoGradGuard frozen;
  const int64_t n = lesson.tokens.size(0), cut = lesson.cut, n_gated = options.n_gated(lesson);
  check(n_gated > 0 && cut < n && cut > info.window, "a cut behind the window, and a tail behind the cut");
  const Rotation rotation = rotation_of(model, n);
  LateReading out;
  Tensor x = embed(model, lesson.tokens);
  for (int layer = 0; layer < model.n_layers; ++layer) {
    LayerRows rows;
    x = run_layer(model, layer, x, {.rotation = rotation, .keep_rows = &rows});
    const Tensor seen = rows.x.slice(0, 0, cut);
    const AtCut at{
        .q = queries_of(model, layer, seen.slice(0, cut - info.window, cut), part_of(rotation, cut - info.window, cut)),
        .k = rows.k.slice(0, 0, cut),
        .v = rows.v.slice(0, 0, cut),
        .logits = append == nullptr ? Tensor() : append->logits(layer, seen)};
    out.features.push_back(late_features(at, info, options.gated.sinks, options.gated.sinks + n_gated));
    out.before.push_back({.x = {}, .k = at.k.clone(), .v = at.v.clone()});
  }
  out.hidden = final_norm(model, x.slice(0, cut, n));
  return out;
}

namespace {

// What the stage lets through of each layer's rows [cut, n_kv_heads], and the mean of it over gated rows.
struct Through {
  std::vector<Tensor> of_layer;
  std::vector<double> layer_keep;
};

Through let_through(const FrozenModel& model, const LearnedAgeing& stage, const LateLesson& lesson,
                    const LateReading& reading, const LateOptions& options, const Draw& draw) {
  const int64_t n_gated = options.n_gated(lesson), sinks = options.gated.sinks;
  std::vector<Tensor> noisy;
  for (int layer = 0; layer < model.n_layers; ++layer) {
    const Tensor& features = reading.features[static_cast<size_t>(layer)];
    noisy.push_back(stage.logits(layer, features) +
                    logistic_noise(draw, layer, n_gated, model.n_kv_heads, features.options()));
  }
  // One shift for all of them, or one for each; it follows the logits, so that the mean stays.
  const auto shifted = [&](const Tensor& logits) {
    const double shift = shift_for(logits.detach(), draw);
    const Tensor followed = (shift_weights(logits.detach(), shift, draw) * logits).sum();
    return logits + (shift - (followed - followed.detach()));
  };
  if (options.pressure == Pressure::exact) {
    noisy = shifted(at::stack(noisy)).unbind(0);
  } else {
    for (Tensor& one : noisy)
      one = shifted(one);
  }
  Through out;
  const at::TensorOptions plain = noisy[0].options().requires_grad(false);
  for (const Tensor& logits : noisy) {
    const Tensor u = keep_of(logits, draw);
    out.layer_keep.push_back(u.mean().item<double>());
    out.of_layer.push_back(at::cat({at::ones({sinks, model.n_kv_heads}, plain), u,
                                    at::ones({lesson.cut - sinks - n_gated, model.n_kv_heads}, plain)}));
  }
  return out;
}

}  // namespace

PassResult run_late(const FrozenModel& model, const LearnedAgeing& stage, const LateLesson& lesson,
                    const LateReading& reading, const LateOptions& options, const Draw& draw,
                    std::vector<Tensor>* gradients) {
  const c10::AutoGradMode mode(gradients != nullptr);
  const int64_t n = lesson.tokens.size(0);
  const Through through = let_through(model, stage, lesson, reading, options, draw);
  const Rotation rotation = part_of(rotation_of(model, n), lesson.cut, n);
  PassResult result;
  Tensor x = embed(model, lesson.tokens.slice(0, lesson.cut, n));
  for (int layer = 0; layer < model.n_layers; ++layer) {
    const auto at_layer = static_cast<size_t>(layer);
    x = run_layer(model, layer, x,
                  {.rotation = rotation, .before = &reading.before[at_layer], .through = through.of_layer[at_layer]});
    result.layer_keep.push_back(through.layer_keep[at_layer]);
    result.keep += through.layer_keep[at_layer] / model.n_layers;
  }
  const Tensor hidden = final_norm(model, x);
  const LossTarget target{.weight = lesson.weight,
                          .first = 0,
                          .full = options.from_full ? reading.hidden : Tensor(),
                          .next = lesson.tokens.slice(0, lesson.cut, n).roll({-1}, {0})};
  const Loss loss = lm_loss(model, hidden.detach(), target, gradients != nullptr);
  result.loss = result.lm_loss = loss.value;
  if (gradients != nullptr) {
    const auto by_stage =
        torch::autograd::grad({hidden}, {stage.parameters().begin(), stage.parameters().end()}, {loss.by_hidden});
    for (size_t i = 0; i < by_stage.size(); ++i)
      (*gradients)[i].add_(by_stage[i]);
  }
  return result;
}

}  // namespace kedge::lm
