#include "train_lm/trainer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <filesystem>

#include "api/model_impl.h"
#include "base/available_memory.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/sha256.h"
#include "gate/open_gate.h"
#include "session/model_identity.h"
#include "train/fit_gate.h"
#include "train_lm/step_columns.h"
#include "train_lm/trainer_parts.h"

namespace kedge::lm {

namespace fs = std::filesystem;
using at::Tensor;

namespace {

constexpr double kMostNorm = 1;            // of a step's gradient
constexpr size_t kInputWindows = 4;        // over which the gates' inputs are measured
constexpr size_t kTrainingJudgements = 3;  // windows of kld_in_training()
constexpr size_t kCalibrationWindows = 8;

}  // namespace

Trainer::Trainer(TrainerInput input) : input_(std::move(input)) {
  const LmSettings& s = input_.settings;
  course_ = {.steps = s.steps, .keep = s.keep, .adversarial = s.adversarial, .rate = s.rate, .seed = s.seed};
  pass_options_ = {.gated = {.window = s.texts.collect.labels.window, .sinks = s.texts.collect.sinks},
                   .from_full = s.loss == "kl",
                   .pressure = s.pressure == "exact"   ? Pressure::exact
                               : s.pressure == "layer" ? Pressure::layer
                                                       : Pressure::penalty,
                   .lambda = s.lambda,
                   .full_rows = s.rows == "full",
                   .recompute = s.recompute == Recompute::on};
  for (const train::Window& window : input_.windows)
    (window.held_out ? held_out_ : learned_).push_back(window);
  const model::Tokenizer& tokenizer = *input_.model.impl().tokenizer;
  words_ = {.tokenize = [&tokenizer](std::string_view text) { return tokenizer.tokenize(text, false, false); },
            .piece = [&tokenizer](Token token) { return tokenizer.piece(token); }};
}

Result<std::unique_ptr<Trainer>> Trainer::create(TrainerInput input) {
  std::unique_ptr<Trainer> trainer(new Trainer(std::move(input)));
  if (Status started = trainer->start(); !started)
    return started.error();
  return trainer;
}

Status Trainer::start() {
  const model::Model& net = *input_.model.impl().net;
  const std::string& products = input_.settings.products;
  bf16_ = products == "bf16" || (products == "auto" && bf16_is_fast());
  Result<FrozenModel> frozen = freeze(net, at::kFloat, bf16_);
  if (!frozen)
    return frozen.error();
  frozen_ = *std::move(frozen);
  const LmSettings& s = input_.settings;
  info_ = {.name = net.hyper().name + " gate",
           .model = session::gate_model(net),
           .width = s.width,
           .window = static_cast<int>(pass_options_.gated.window),
           .sinks = static_cast<int>(pass_options_.gated.sinks),
           .training_data = input_.text.names,
           .training_data_sha256 = input_.text.sha256,
           .training_loss = {}};
  int64_t longest = 0;
  for (const train::Window& window : input_.windows)
    longest = std::max(longest, window.n);
  choose_recompute(longest);
  std::vector<std::span<const Token>> judged;
  for (const train::Window& window : spread(held_out_, static_cast<size_t>(s.judge_windows)))
    judged.push_back(tokens_of(input_.text, window));
  judge_ = std::make_unique<Judge>(input_.model, std::move(judged), JudgeOptions{.budget = s.budget()});
  std::error_code error;
  if (!fs::exists(path("lm-state.bin"), error))
    return is_late() ? read_late_gate({}) : read_first_gate(measure_inputs());
  Result<TrainState> state = read_state(path("lm-state.bin"));
  return state ? take_state(*std::move(state)) : Status(state.error());
}

// Where half of the free memory does not hold what the layers of the longest window keep.
void Trainer::choose_recompute(int64_t longest) {
  if (input_.settings.recompute != Recompute::automatic)
    return;
  const int64_t heads = hyper().n_heads * hyper().head_dim, kv_heads = hyper().n_kv_heads * hyper().head_dim;
  const int64_t floats = 4 * hyper().n_embd + 3 * heads + 4 * kv_heads + 2 * hyper().n_ff + 3 * input_.settings.width +
                         4 * input_.settings.lora;
  pass_options_.recompute = 4 * floats * longest * hyper().n_layers > available_memory_bytes().value_or(0) / 2;
}

std::vector<Standard> Trainer::measure_inputs() const {
  std::vector<Tensor> sum(static_cast<size_t>(frozen_.n_layers)), square(sum.size());
  double n = 0;
  for (const train::Window& window : spread(learned_, kInputWindows)) {
    const FullReading reading = read_in_full(frozen_, window_tokens(window), {.rows = true});
    n += static_cast<double>(window.n);
    for (size_t layer = 0; layer < sum.size(); ++layer) {
      const Tensor x = reading.rows[layer].x.to(at::kDouble);
      sum[layer] = sum[layer].defined() ? sum[layer] + x.sum(0) : x.sum(0);
      square[layer] = square[layer].defined() ? square[layer] + (x * x).sum(0) : (x * x).sum(0);
    }
  }
  std::vector<Standard> inputs;
  for (size_t layer = 0; layer < sum.size(); ++layer) {
    const Tensor mean = sum[layer] / n;
    const Tensor deviation = (square[layer] / n - mean * mean).clamp_min(0).sqrt();
    const Tensor scale = at::where(deviation > 1e-6, 1 / deviation, at::zeros({}, deviation.options()));
    inputs.push_back({.mean = flat(std::vector<Tensor>{mean.to(at::kFloat)}),
                      .scale = flat(std::vector<Tensor>{scale.to(at::kFloat)})});
  }
  return inputs;
}

Status Trainer::read_first_gate(std::vector<Standard> inputs) {
  const std::string& from = input_.settings.gate_init;
  if (from.empty()) {
    gate_ =
        std::make_unique<LearnedGate>(LearnedGate::fresh(info_, std::move(inputs), input_.settings.seed, at::kFloat));
  } else {
    Result<gate::OpenGate> opened = gate::open_gate(from, info_.model);
    if (!opened)
      return opened.error();
    first_gate_sha256_ = opened->sha256;
    gate::Gate& gate = opened->gate;
    if (gate.info.input != info_.input)
      return Error{ErrorCode::usage, "--gate-init " + from + ": found a gate of the input '" + gate.info.input +
                                         "', allowed '" + info_.input + "'"};
    info_.width = gate.info.width;
    gate.info = info_;
    gate_ = std::make_unique<LearnedGate>(gate, std::move(inputs), at::kFloat);
  }
  std::vector<float> measured;
  for (const Standard& one : gate_->inputs()) {
    measured.insert(measured.end(), one.mean.begin(), one.mean.end());
    measured.insert(measured.end(), one.scale.begin(), one.scale.end());
  }
  lora_ = LearnedLora::fresh(frozen_, input_.settings.lora, input_.settings.seed, at::kFloat);
  begin_state(std::move(measured));
  return {};
}

void Trainer::begin_state(std::vector<float> inputs) {
  optimiser_ = std::make_unique<AdamW>(parameters());
  lora_optimiser_ = AdamW(lora_.parameters());
  state_ = {};
  state_.made_from = made_from();
  state_.n_step_values = kStepColumns + static_cast<uint64_t>(frozen_.n_layers);
  state_.inputs = std::move(inputs);
}

// Everything that the gate of a step depends on.
std::string Trainer::made_from() const {
  const LmSettings& s = input_.settings;
  std::string all = info_.model.sha256 + input_.text.sha256 + first_gate_sha256_;
  const auto add = [&all](const auto& value) { all += "," + std::to_string(value); };
  for (const train::Window& window : input_.windows) {
    add(window.document);
    add(window.begin);
    add(window.n);
    add(window.held_out);
  }
  all += std::string(bf16_ ? ",bf16" : ",f32") + "," + s.loss + "," + s.pressure + "," + s.rows + "," + s.learns;
  for (const int64_t value : {s.steps, int64_t{s.batch}, s.judge_every, s.patience, s.judge_windows,
                              static_cast<int64_t>(s.seed), int64_t{s.width}, pass_options_.gated.window})
    add(value);
  for (const double value : {s.keep, s.lambda, s.adversarial, s.rate})
    add(value);
  if (s.lora > 0) {
    add(s.lora);
    add(s.lora_rate);
  }
  return sha256_hex(all);
}

Status Trainer::take_state(TrainState state) {
  const std::string file = path("lm-state.bin");
  const auto n_embd = static_cast<size_t>(frozen_.n_embd);
  std::vector<Standard> inputs;
  for (size_t at = 0; at + 2 * n_embd <= state.inputs.size(); at += 2 * n_embd) {
    const auto mean = state.inputs.begin() + static_cast<std::ptrdiff_t>(at);
    const auto scale = mean + static_cast<std::ptrdiff_t>(n_embd);
    inputs.push_back({.mean = {mean, scale}, .scale = {scale, scale + static_cast<std::ptrdiff_t>(n_embd)}});
  }
  const Error other{ErrorCode::usage, file +
                                          " is of a training with another model, other texts or other options; "
                                          "delete it, or give another --gate-out"};
  if (!is_late() && inputs.size() != static_cast<size_t>(frozen_.n_layers))
    return other;
  if (Status made = is_late() ? read_late_gate(state.inputs) : read_first_gate(std::move(inputs)); !made)
    return made;
  if (state.made_from != state_.made_from)
    return other;
  if (state.n_step_values != state_.n_step_values || !unflatten(state.parameters, parameters()) ||
      !unflatten(state.first, optimiser_->first()) || !unflatten(state.second, optimiser_->second()) ||
      !unflatten(state.lora, lora_.parameters()) || !unflatten(state.lora_first, lora_optimiser_.first()) ||
      !unflatten(state.lora_second, lora_optimiser_.second()) ||
      (!state.best.empty() &&
       (state.best.size() != state.parameters.size() || state.best_lora.size() != state.lora.size())))
    return Error{ErrorCode::failed, file + ": its sizes are not those of this model and gate"};
  optimiser_->set_steps(state.step);
  lora_optimiser_.set_steps(state.step);
  state_ = std::move(state);
  return {};
}

void Trainer::put_state() {
  state_.parameters = flat(parameters());
  state_.first = flat(optimiser_->first());
  state_.second = flat(optimiser_->second());
  state_.lora = flat(lora_.parameters());
  state_.lora_first = flat(lora_optimiser_.first());
  state_.lora_second = flat(lora_optimiser_.second());
}

const model::HyperParams& Trainer::hyper() const { return input_.model.impl().net->hyper(); }

std::string Trainer::path(const char* name) const { return (fs::path(input_.settings.texts.out) / name).string(); }

Tensor Trainer::window_tokens(const train::Window& window) const { return as_tensor(tokens_of(input_.text, window)); }

Lesson Trainer::plain_lesson(const train::Window& window) const {
  return {.tokens = window_tokens(window), .weight = even_weight(window.n, pass_options_, frozen_.options())};
}

// A built passage whose needed rows the gate would give up first; a plain lesson where the window is too short for one.
Lesson Trainer::adversarial_lesson(const train::Window& window, const StepPlan& plan, double& flops) const {
  eval::Random random(plan.seed, "passage");
  const std::span<const Token> text = tokens_of(input_.text, window);
  const Body body = random.below(2) == 0 ? plant_needles(text, words_, random) : find_copies(text, words_, random);
  if (body.candidates.empty())
    return plain_lesson(window);
  const Tensor tokens = as_tensor(body.tokens);
  const FullReading reading = read_in_full(frozen_, tokens, {.gate = gate_.get()});
  flops += train::full_reading_flops(hyper(), tokens.size(0));
  const Draw draw{.keep = plan.keep, .noise = 0};
  const Tensor logits = at::stack(reading.logits).detach();  // [n_layers, n, n_heads]
  const Tensor keep =
      keep_of(logits + shift_for(logits, draw), draw).mean(at::IntArrayRef({0, 2})).to(at::kDouble).contiguous();
  const Candidate& chosen =
      body.candidates[hardest(body, {keep.data_ptr<double>(), static_cast<size_t>(keep.numel())})];
  std::vector<Token> all = body.tokens;
  all.insert(all.end(), chosen.tail.begin(), chosen.tail.end());
  const auto n = static_cast<int64_t>(all.size());
  const int64_t n_answer = static_cast<int64_t>(chosen.tail.size()) - chosen.n_asked;
  // Half for the text, half for the answer, each of whose tokens is predicted at the position before it.
  Lesson lesson{.tokens = as_tensor(all), .weight = even_weight(n, pass_options_, frozen_.options()) / 2};
  lesson.weight.slice(0, n - n_answer - 1, n - 1).add_(0.5 / static_cast<double>(n_answer));
  return lesson;
}

StepReport Trainer::step() {
  const Stopwatch watch;
  StepReport report{.step = state_.step + 1, .plan = plan_step(course_, state_.step), .result = {}};
  Gradients gradients;
  for (const Tensor& one : parameters())
    gradients.gate.push_back(at::zeros_like(one.detach()));
  for (const Tensor& one : lora_.parameters())
    gradients.lora.push_back(at::zeros_like(one.detach()));
  const int batch = input_.settings.batch;
  PassResult& mean = report.result;
  mean.layer_keep.assign(static_cast<size_t>(frozen_.n_layers), 0);
  for (int i = 0; i < batch; ++i) {
    const int64_t index = walk(static_cast<int64_t>(learned_.size()), state_.step * batch + i, course_.seed);
    const train::Window& window = learned_[static_cast<size_t>(index)];
    StepPlan plan = report.plan;
    plan.seed += static_cast<uint64_t>(i);
    const PassResult one =
        is_late() ? late_step(window, plan, gradients.gate, report) : append_step(window, plan, gradients, report);
    mean.loss += one.loss / batch;
    mean.lm_loss += one.lm_loss / batch;
    mean.keep += one.keep / batch;
    for (size_t layer = 0; layer < one.layer_keep.size(); ++layer)
      mean.layer_keep[layer] += one.layer_keep[layer] / batch;
  }
  for (std::vector<Tensor>* all : {&gradients.gate, &gradients.lora}) {
    for (Tensor& one : *all)
      one.div_(batch);
  }
  const LmSettings& s = input_.settings;
  report.norm = optimiser_->step(parameters(), gradients.gate, report.plan.rate, kMostNorm);
  lora_optimiser_.step(lora_.parameters(), gradients.lora, report.plan.rate * s.lora_rate / s.rate, kMostNorm);
  report.seconds = watch.seconds();
  return report;
}

PassResult Trainer::append_step(const train::Window& window, const StepPlan& plan, Gradients& gradients,
                                StepReport& report) {
  const Lesson lesson = plan.adversarial ? adversarial_lesson(window, plan, state_.flops) : plain_lesson(window);
  FullReading full;
  if (pass_options_.needs_full())
    full = read_in_full(frozen_, lesson.tokens, {.gate = gate_.get(), .rows = pass_options_.full_rows});
  report.n_tokens += lesson.tokens.size(0);
  count(lesson);
  return Pass(frozen_, pass_options_).run(learned(), lesson, &full, draw_of(plan), &gradients);
}

gate::Gate Trainer::current_gate() const {
  if (!is_late())
    return gate_->to_gate();
  gate::Gate gate = given_;
  gate.ageing = ageing_->to_ageing();
  return gate;
}

void Trainer::count(const Lesson& lesson) {
  const int64_t n = lesson.tokens.size(0);
  state_.n_tokens += n;
  state_.flops += train::pass_flops(hyper(), {.n = n,
                                              .n_counted = pass_options_.gated.n_gated(n),
                                              .width = info_.width,
                                              .from_full = pass_options_.from_full,
                                              .full = pass_options_.needs_full(),
                                              .recompute = pass_options_.recompute});
}

// Hard gates at the last keep rate, without noise, on held-out windows.
double Trainer::kld_in_training() const {
  double sum = 0;
  PassOptions options = pass_options_;
  options.from_full = true;
  const std::vector<train::Window> windows = spread(held_out_, kTrainingJudgements);
  if (is_late())
    return late_kld_in_training(windows);
  for (const train::Window& window : windows) {
    const Lesson lesson{.tokens = window_tokens(window), .weight = even_weight(window.n, options, frozen_.options())};
    const FullReading full = read_in_full(frozen_, lesson.tokens, {.gate = gate_.get(), .rows = options.full_rows});
    const Draw draw{.keep = course_.keep, .tau = kLastTau, .anneal = 1, .noise = 0};
    sum += Pass(frozen_, options).run(learned(), lesson, &full, draw, nullptr).lm_loss;
  }
  return sum / static_cast<double>(windows.size());
}

Status Trainer::judge(const TellJudged& judged) {
  const double in_training = kld_in_training();
  const gate::Gate gate = current_gate();
  const Judged tried{.gate = gate,
                     .gate_path = path("gate-lm.tried.gguf"),
                     .lora = lora_.rank() > 0 ? lora_.file("tried", "") : std::vector<std::byte>(),
                     .lora_path = path("lora.tried.gguf")};
  const Result<double> by_engine = judge_->kld(tried);
  if (!by_engine)
    return by_engine.error();
  state_.judgements.insert(state_.judgements.end(), {static_cast<double>(state_.step), in_training, *by_engine});
  if (state_.step == 0)
    state_.start_kld = *by_engine;
  if (state_.best.empty() || *by_engine < state_.best_kld) {
    state_.best = flat(parameters());
    state_.best_lora = flat(lora_.parameters());
    state_.best_kld = *by_engine;
    state_.best_step = state_.step;
    state_.n_worse = 0;
  } else {
    ++state_.n_worse;
  }
  state_.is_over = input_.settings.patience > 0 && state_.n_worse >= input_.settings.patience;
  judged(state_.step, in_training, *by_engine);
  std::error_code gone;
  fs::remove(tried.gate_path, gone);
  fs::remove(tried.lora_path, gone);
  return {};
}

Status Trainer::run(const Told& told, const TellJudged& judged, const std::function<bool()>& stop) {
  const LmSettings& s = input_.settings;
  const double before = state_.seconds;
  const Stopwatch watch;
  const auto save = [&] {
    state_.seconds = before + watch.seconds();
    put_state();
    return save_state(state_, path("lm-state.bin"));
  };
  if (state_.step == 0 && state_.judgements.empty()) {
    if (Status first = judge(judged); !first)
      return first;
  }
  while (state_.step < s.steps && !state_.is_over) {
    const StepReport report = step();
    ++state_.step;
    const StepPlan& plan = report.plan;
    state_.steps.insert(state_.steps.end(),
                        {static_cast<double>(report.step), report.result.loss, report.result.lm_loss, plan.level,
                         plan.keep, report.result.keep, plan.tau, plan.anneal, plan.rate, report.norm,
                         plan.adversarial ? 1.0 : 0.0, report.seconds});
    state_.steps.insert(state_.steps.end(), report.result.layer_keep.begin(), report.result.layer_keep.end());
    told(report);
    if (state_.step % s.judge_every == 0 || state_.step == s.steps) {
      if (Status status = judge(judged); !status)
        return status;
    }
    const bool stopped = stop() && state_.step < s.steps && !state_.is_over;
    if (stopped || state_.step % s.save_every == 0 || state_.step == s.steps || state_.is_over) {
      if (Status saved = save(); !saved)
        return saved;
    }
    if (stopped)
      return Error{ErrorCode::cancelled, "stopped after step " + std::to_string(state_.step) + " of " +
                                             std::to_string(s.steps) + "; the same command goes on from there"};
  }
  return {};
}

// How what is written came to be.
std::string Trainer::training_text() const {
  const LmSettings& s = input_.settings;
  return std::string(pass_options_.from_full ? "KL divergence from the full cache" : "cross-entropy of the text") +
         ", end to end: " + std::to_string(state_.best_step) + " of " + std::to_string(s.steps) + " steps of " +
         std::to_string(s.batch) + " windows, keep rate down to " + s.budget() + ", pressure " + s.pressure +
         ", rows " + s.rows + (s.gate_init.empty() ? "" : ", begun with " + fs::path(s.gate_init).filename().string()) +
         (s.lora > 0 ? ", beside a LoRA adapter of rank " + std::to_string(s.lora) : "");
}

LearnedLora Trainer::best_adapter() const {
  LearnedLora best(lora_);
  for (Tensor& one : best.parameters())
    one = one.detach().clone();
  check(unflatten(state_.best_lora, best.parameters()), "the best adapter has the sizes of the adapter");
  return best;
}

std::vector<std::byte> Trainer::best_lora() const {
  if (lora_.rank() == 0)
    return {};
  return best_adapter().file(hyper().name + " adapter", "tuned together with a discard gate, under its evictions: " +
                                                            training_text() + "; on " + input_.text.names);
}

Result<gate::Gate> Trainer::best_gate() const {
  if (is_late())
    return best_late_gate();
  LearnedGate best(*gate_);
  for (Tensor& one : best.parameters())
    one = one.detach().clone();
  check(unflatten(state_.best, best.parameters()), "the best gate has the sizes of the gate");
  gate::Gate gate = best.to_gate();
  gate.info.training_loss = training_text();
  const LearnedLora adapter = best_adapter();
  std::vector<float> logits;
  for (const train::Window& window : spread(held_out_, kCalibrationWindows)) {
    const FullReading full = read_in_full(frozen_, window_tokens(window), {.gate = &best, .lora = &adapter});
    for (const Tensor& layer : full.logits) {
      const std::vector<float> rows = flat(std::vector<Tensor>{
          layer.detach().narrow(0, pass_options_.gated.sinks, pass_options_.gated.n_gated(window.n))});
      logits.insert(logits.end(), rows.begin(), rows.end());
    }
  }
  train::calibrate(gate, std::move(logits));
  return gate;
}

}  // namespace kedge::lm
