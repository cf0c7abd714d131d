#include "train_lm/pass.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

#include "base/check.h"

namespace kedge::lm {

using at::Tensor;
using torch::autograd::variable_list;

Tensor even_weight(int64_t n, const PassOptions& options, const at::TensorOptions& type) {
  Tensor weight = at::zeros({n}, type);
  const int64_t first = std::min(options.gated.window + options.gated.sinks, n - 1);
  const int64_t end = options.from_full ? n : n - 1;
  weight.slice(0, std::min(first, end - 1), end).fill_(1);
  return weight.div_(weight.sum());
}

std::optional<LayerLora> Learned::adapter(const FrozenModel& model, int layer) const {
  return lora == nullptr || lora->rank() == 0 ? std::nullopt : std::optional(lora->layer(model, layer));
}

Gradients zero_gradients(const Learned& learned) {
  Gradients out;
  for (const Tensor& one : learned.gate.parameters())
    out.gate.push_back(at::zeros_like(one.detach()));
  if (learned.lora != nullptr) {
    for (const Tensor& one : learned.lora->parameters())
      out.lora.push_back(at::zeros_like(one.detach()));
  }
  return out;
}

FullReading read_in_full(const FrozenModel& model, const Tensor& tokens, const FullOptions& options) {
  const c10::NoGradGuard frozen;
  const Rotation rotation = rotation_of(model, tokens.size(0));
  FullReading out;
  Tensor x = embed(model, tokens);
  for (int layer = 0; layer < model.n_layers; ++layer) {
    LayerRows rows;
    const bool adapted = options.lora != nullptr && options.lora->rank() > 0;
    const LayerLora lora = adapted ? options.lora->layer(model, layer) : LayerLora();
    x = run_layer(model, layer, x, {.rotation = rotation, .keep_rows = &rows, .lora = adapted ? &lora : nullptr});
    if (options.gate != nullptr) {
      const c10::AutoGradMode learns(true);
      out.logits.push_back(options.gate->logits(layer, rows.x));
    }
    if (options.rows)
      out.rows.push_back(std::move(rows));
  }
  out.hidden = final_norm(model, x);
  return out;
}

struct Pass::Segment {
  Tensor in, out;   // the stream
  Tensor shift;     // of this layer's logits, 0-dimensional
  Tensor keep_sum;  // over gated rows and heads
};

struct Pass::State {
  const Learned& learned;
  const Lesson& lesson;
  const FullReading* full;
  const Draw& draw;
  Rotation rotation;
  int64_t n = 0;
  int64_t n_gated = 0;
  double shift = 0;                   // exact: of all layers
  std::vector<Tensor> shift_weights;  // exact: [layer] of the full reading's logits of gated rows
  std::vector<Segment> segments;
  Tensor gated(const Tensor& rows, const GatedRows& which) const { return rows.narrow(0, which.sinks, n_gated); }
};

void Pass::set_exact_shift(State& state) const {
  const c10::NoGradGuard frozen;
  std::vector<Tensor> all;
  for (int layer = 0; layer < model_.n_layers; ++layer) {
    const Tensor& logits = state.full->logits[static_cast<size_t>(layer)];
    const Tensor noise = logistic_noise(state.draw, layer, state.n, model_.n_kv_heads, logits.options());
    all.push_back(state.gated(logits + noise, options_.gated));
  }
  const Tensor noisy = at::stack(all);
  state.shift = shift_for(noisy, state.draw);
  state.shift_weights = shift_weights(noisy, state.shift, state.draw).unbind(0);
}

// What the gates of a layer make of its rows: u, and what of it the way back asks about.
Tensor Pass::let_through(State& state, Segment& segment, int layer, const Tensor& x) const {
  const Tensor noisy =
      state.learned.gate.logits(layer, x) + logistic_noise(state.draw, layer, state.n, model_.n_kv_heads, x.options());
  if (options_.pressure == Pressure::layer) {
    const Tensor gated = state.gated(noisy, options_.gated);
    const double shift = shift_for(gated.detach(), state.draw);
    const Tensor followed = (shift_weights(gated.detach(), shift, state.draw) * gated).sum();
    segment.shift = shift - (followed - followed.detach());
  } else {
    segment.shift = at::full({}, state.shift, x.options()).requires_grad_(c10::GradMode::is_enabled());
  }
  const Tensor u = keep_of(noisy + segment.shift, state.draw);
  segment.keep_sum = state.gated(u, options_.gated).sum();
  return u;
}

// One layer; with_gradient: its input is a leaf, and what it computes is kept.
Pass::Segment Pass::run_segment(State& state, int layer, const Tensor& x, bool with_gradient) const {
  const c10::AutoGradMode mode(with_gradient);
  Segment segment{.in = x.detach(), .out = {}, .shift = {}, .keep_sum = {}};
  if (with_gradient && layer > 0)
    segment.in.requires_grad_(true);
  const std::optional<LayerLora> lora = state.learned.adapter(model_, layer);
  segment.out = run_layer(model_, layer, segment.in,
                          {.rotation = state.rotation,
                           .gated = options_.gated,
                           .gate = [&](const Tensor& seen) { return let_through(state, segment, layer, seen); },
                           .rows = options_.full_rows ? &state.full->rows[static_cast<size_t>(layer)] : nullptr,
                           .lora = lora ? &*lora : nullptr});
  return segment;
}

double Pass::head(State& state, const Tensor& x, Tensor* by_x) const {
  const c10::AutoGradMode mode(by_x != nullptr);
  Tensor in = x.detach();
  if (by_x != nullptr)
    in.requires_grad_(true);
  const Tensor hidden = final_norm(model_, in);
  LossTarget target{.weight = state.lesson.weight,
                    .first = std::min(options_.gated.window + options_.gated.sinks, state.n - 2),
                    .full = options_.from_full ? state.full->hidden : Tensor(),
                    .next = state.lesson.tokens.roll({-1}, {0})};
  const Loss loss = lm_loss(model_, hidden.detach(), target, by_x != nullptr);
  if (by_x != nullptr)
    *by_x = torch::autograd::grad({hidden}, {in}, {loss.by_hidden})[0];
  return loss.value;
}

void Pass::go_back(State& state, Tensor by_x, double by_keep, Gradients& gradients) const {
  double by_shift = 0;
  for (int layer = model_.n_layers - 1; layer >= 0; --layer) {
    Segment& kept = state.segments[static_cast<size_t>(layer)];
    const Segment segment = options_.recompute ? run_segment(state, layer, kept.in, true) : std::move(kept);
    kept = {};
    const std::span<const Tensor> own = state.learned.gate.of_layer(layer);
    const std::span<const Tensor> lora =
        state.learned.lora == nullptr ? std::span<const Tensor>() : state.learned.lora->of_layer(layer);
    variable_list inputs(own.begin(), own.end());
    inputs.insert(inputs.end(), lora.begin(), lora.end());
    if (options_.pressure == Pressure::exact)
      inputs.push_back(segment.shift);
    if (layer > 0)
      inputs.push_back(segment.in);
    variable_list outputs = {segment.out};
    variable_list by_outputs = {by_x};
    if (by_keep != 0) {
      outputs.push_back(segment.keep_sum);
      by_outputs.push_back(at::full({}, by_keep, segment.keep_sum.options()));
    }
    const variable_list by_inputs = torch::autograd::grad(outputs, inputs, by_outputs);
    for (size_t i = 0; i < own.size(); ++i)
      gradients.gate[static_cast<size_t>(layer) * own.size() + i].add_(by_inputs[i]);
    for (size_t i = 0; i < lora.size(); ++i)
      gradients.lora[static_cast<size_t>(layer) * lora.size() + i].add_(by_inputs[own.size() + i]);
    if (options_.pressure == Pressure::exact)
      by_shift += by_inputs[own.size() + lora.size()].item<double>();
    if (layer > 0)
      by_x = by_inputs.back();
  }
  if (options_.pressure == Pressure::exact)
    follow_shift(state, by_shift, gradients);
}

// The shift keeps the mean where it is when the full reading's logits move: that part of the gradient.
void Pass::follow_shift(const State& state, double by_shift, Gradients& gradients) const {
  for (int layer = 0; layer < model_.n_layers; ++layer) {
    const auto at_layer = static_cast<size_t>(layer);
    const std::span<const Tensor> own = state.learned.gate.of_layer(layer);
    const Tensor logits = state.gated(state.full->logits[at_layer], options_.gated);
    const variable_list by_own =
        torch::autograd::grad({logits}, {own.begin(), own.end()}, {state.shift_weights[at_layer] * -by_shift}, true);
    for (size_t i = 0; i < own.size(); ++i)
      gradients.gate[at_layer * own.size() + i].add_(by_own[i]);
  }
}

PassResult Pass::run(const Learned& learned, const Lesson& lesson, const FullReading* full, const Draw& draw,
                     Gradients* gradients) const {
  const int64_t n = lesson.tokens.size(0);
  State state{.learned = learned,
              .lesson = lesson,
              .full = full,
              .draw = draw,
              .rotation = rotation_of(model_, n),
              .n = n,
              .n_gated = options_.gated.n_gated(n),
              .shift_weights = {},
              .segments = {}};
  check(state.n_gated > 0, "a text longer than the window");
  check(full != nullptr || !options_.needs_full(), "the full reading that the options need");
  check(learned.lora == nullptr || learned.lora->rank() == 0 || !options_.full_rows, "an adapter's rows are its own");
  if (options_.pressure == Pressure::exact)
    set_exact_shift(state);
  PassResult result;
  const double n_rows = static_cast<double>(state.n_gated * model_.n_kv_heads);
  Tensor x = embed(model_, lesson.tokens);
  for (int layer = 0; layer < model_.n_layers; ++layer) {
    const bool kept = gradients != nullptr && !options_.recompute;
    Segment segment = run_segment(state, layer, x, kept);
    x = segment.out.detach();
    result.layer_keep.push_back(segment.keep_sum.item<double>() / n_rows);
    result.keep += result.layer_keep.back() / model_.n_layers;
    if (gradients != nullptr)
      state.segments.push_back(kept ? std::move(segment) : Segment{.in = segment.in});
  }
  Tensor by_x;
  result.lm_loss = result.loss = head(state, x, gradients == nullptr ? nullptr : &by_x);
  double by_keep = 0;
  if (options_.pressure == Pressure::penalty) {
    const double over = std::max(0.0, result.keep - draw.keep);
    result.loss += options_.lambda * over * over;
    by_keep = 2 * options_.lambda * over / (n_rows * model_.n_layers);
  }
  if (gradients != nullptr)
    go_back(state, by_x, by_keep, *gradients);
  return result;
}

}  // namespace kedge::lm
