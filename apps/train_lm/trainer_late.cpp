// The trainer of an ageing stage: what is said of rows at an eviction learns, what was said when they were written is
// frozen.
#include <ATen/ATen.h>

#include <algorithm>
#include <filesystem>

#include "api/model_impl.h"
#include "base/check.h"
#include "eval/random.h"
#include "gate/open_gate.h"
#include "session/model_identity.h"
#include "train_lm/late_features.h"
#include "train_lm/trainer.h"
#include "train_lm/trainer_parts.h"

namespace kedge::lm {

using at::Tensor;

namespace {

constexpr int64_t kMostTail = 192;     // tokens behind a cut, whose predictions count
constexpr size_t kFeatureWindows = 4;  // over which features are measured

int64_t tail_of(int64_t n) { return std::min(kMostTail, n / 4); }

// x' = x
std::vector<Standard> as_they_come(const gate::GateInfo& info) {
  const auto n = static_cast<size_t>(info.model.n_embd);
  return std::vector<Standard>(static_cast<size_t>(info.model.n_layers),
                               {.mean = std::vector<float>(n, 0.0F), .scale = std::vector<float>(n, 1.0F)});
}

Status can_begin(const gate::Gate& gate, const std::string& from) {
  const auto found = [&from](const std::string& what, const std::string& allowed) {
    return Error{ErrorCode::usage,
                 "--gate-init " + from + ": found " + what + ", allowed with --lm-learns ageing " + allowed};
  };
  if (gate.ageing.info.features.empty())
    return found("a gate without an ageing stage", "one that has it, as --gate-input window makes it");
  if (gate.info.input == "key_value" && gate.ageing.info.asks(gate::Feature::logit))
    return found("the logit of the input 'key_value' among its features", "that of 'hidden'");
  return can_learn(gate.ageing.info);
}

}  // namespace

// standards: of a training that goes on; empty: measured.
Status Trainer::read_late_gate(std::span<const float> standards) {
  const std::string& from = input_.settings.gate_init;
  if (from.empty())
    return Error{ErrorCode::usage, "--lm-learns ageing: no gate to begin with: --gate-init FILE names one"};
  Result<gate::OpenGate> opened = gate::open_gate(from, info_.model);
  if (!opened)
    return opened.error();
  first_gate_sha256_ = opened->sha256;
  if (Status can = can_begin(opened->gate, from); !can)
    return can;
  given_ = std::move(opened->gate);
  given_.info.ranks = input_.settings.pressure == "exact" ? "model" : "head";  // one shift for all layers and heads
  info_ = given_.info;
  if (!given_.layers.empty())
    gate_ = std::make_unique<LearnedGate>(given_, as_they_come(info_), at::kFloat);
  const gate::Ageing& stage = given_.ageing;
  if (!standards.empty()) {
    if (standards.size() != LearnedAgeing::n_standards(stage, frozen_.n_kv_heads))
      return Error{ErrorCode::usage, path("lm-state.bin") + " is of a training of another stage; delete it"};
    ageing_ = std::make_unique<LearnedAgeing>(stage, standards, frozen_.n_kv_heads, at::kFloat);
  } else {
    std::vector<std::vector<Tensor>> measured(static_cast<size_t>(frozen_.n_layers));
    for (const train::Window& window : spread(learned_, kFeatureWindows)) {
      const LateReading reading = read(late_lesson(window, input_.settings.seed));
      for (size_t layer = 0; layer < measured.size(); ++layer)
        measured[layer].push_back(reading.features[layer]);
    }
    std::vector<Tensor> features;
    for (const std::vector<Tensor>& rows : measured)
      features.push_back(at::cat(rows));
    ageing_ = std::make_unique<LearnedAgeing>(stage, features);
  }
  begin_state(ageing_->standards());
  return {};
}

LateOptions Trainer::late_options() const {
  return {.gated = pass_options_.gated, .from_full = pass_options_.from_full, .pressure = pass_options_.pressure};
}

LateReading Trainer::read(const LateLesson& lesson) const {
  return read_late(frozen_, lesson, gate_.get(), given_.ageing.info, late_options());
}

// Cut somewhere in the second half, by the seed.
LateLesson Trainer::late_lesson(const train::Window& window, uint64_t seed) const {
  const int64_t tail = tail_of(window.n);
  const int64_t last = window.n - tail;
  const int64_t behind = std::max<int64_t>(pass_options_.gated.window, given_.ageing.info.window);
  const int64_t first = std::min(last, std::max(window.n / 2, behind + pass_options_.gated.sinks + 1));
  eval::Random random(seed, "cut");
  LateLesson lesson{.tokens = {}, .cut = first + random.below(last - first + 1), .weight = {}};
  lesson.tokens = window_tokens(window).slice(0, 0, lesson.cut + tail).contiguous();
  lesson.weight = at::ones({tail}, frozen_.options());
  if (!pass_options_.from_full)
    lesson.weight[tail - 1] = 0;  // nothing follows it
  lesson.weight.div_(lesson.weight.sum());
  return lesson;
}

// A built passage, cut before it asks: half of the loss is the answer's.
LateLesson Trainer::adversarial_late_lesson(const train::Window& window, const StepPlan& plan, double& flops) const {
  eval::Random random(plan.seed, "passage");
  const std::span<const Token> text = tokens_of(input_.text, window);
  const Body body = random.below(2) == 0 ? plant_needles(text, words_, random) : find_copies(text, words_, random);
  const auto with_tail = [&](const Candidate& one) {
    std::vector<Token> all = body.tokens;
    all.insert(all.end(), one.tail.begin(), one.tail.end());
    const auto n_tail = static_cast<int64_t>(one.tail.size());
    const int64_t n_answer = n_tail - one.n_asked;
    LateLesson lesson{.tokens = as_tensor(all),
                      .cut = static_cast<int64_t>(body.tokens.size()),
                      .weight = at::full({n_tail}, 0.5 / static_cast<double>(n_tail), frozen_.options())};
    // Each of its tokens is predicted at the position before it.
    lesson.weight.slice(0, one.n_asked - 1, n_tail - 1).add_(0.5 / static_cast<double>(n_answer));
    if (!pass_options_.from_full)
      lesson.weight[n_tail - 1] = 0;
    lesson.weight.div_(lesson.weight.sum());
    return lesson;
  };
  if (body.candidates.empty())
    return late_lesson(window, plan.seed);
  const LateLesson any = with_tail(body.candidates.front());
  if (late_options().n_gated(any) <= 0 || any.cut <= given_.ageing.info.window)
    return late_lesson(window, plan.seed);
  const LateReading reading = read(any);
  flops += train::full_reading_flops(hyper(), any.tokens.size(0));
  std::vector<Tensor> logits;
  for (int layer = 0; layer < frozen_.n_layers; ++layer)
    logits.push_back(ageing_->logits(layer, reading.features[static_cast<size_t>(layer)]).detach());
  const Tensor all = at::stack(logits);  // [n_layers, n_gated, n_kv_heads]
  const Draw draw{.keep = plan.keep, .noise = 0};
  const Tensor gated = keep_of(all + shift_for(all, draw), draw).mean(at::IntArrayRef({0, 2})).to(at::kDouble);
  Tensor keep = at::ones({any.cut}, at::kDouble);
  keep.slice(0, late_options().gated.sinks, late_options().gated.sinks + gated.size(0)).copy_(gated);
  return with_tail(body.candidates[hardest(body, {keep.data_ptr<double>(), static_cast<size_t>(keep.numel())})]);
}

PassResult Trainer::late_step(const train::Window& window, const StepPlan& plan, std::vector<Tensor>& gradients,
                              StepReport& report) {
  const LateLesson lesson =
      plan.adversarial ? adversarial_late_lesson(window, plan, state_.flops) : late_lesson(window, plan.seed);
  const LateReading reading = read(lesson);
  const int64_t n = lesson.tokens.size(0), tail = n - lesson.cut;
  report.n_tokens += n;
  state_.n_tokens += n;
  state_.flops +=
      train::full_reading_flops(hyper(), n) + train::pass_flops(hyper(), {.n = tail,
                                                                          .n_counted = tail,
                                                                          .width = 0,
                                                                          .from_full = pass_options_.from_full,
                                                                          .full = false,
                                                                          .recompute = false});
  return run_late(frozen_, *ageing_, lesson, reading, late_options(), draw_of(plan), &gradients);
}

// Hard gates at the last keep rate, without noise.
double Trainer::late_kld_in_training(std::span<const train::Window> windows) const {
  LateOptions options = late_options();
  options.from_full = true;
  double sum = 0;
  for (const train::Window& window : windows) {
    const LateLesson lesson = late_lesson(window, 1);
    const Draw draw{.keep = course_.keep, .tau = kLastTau, .anneal = 1, .noise = 0};
    sum += run_late(frozen_, *ageing_, lesson, read(lesson), options, draw, nullptr).lm_loss;
  }
  return sum / static_cast<double>(windows.size());
}

gate::Gate Trainer::best_late_gate() const {
  const LmSettings& s = input_.settings;
  LearnedAgeing best(*ageing_);
  for (Tensor& one : best.parameters())
    one = one.detach().clone();
  check(unflatten(state_.best, best.parameters()), "the best stage has the sizes of the stage");
  gate::Gate gate = given_;
  gate.ageing = best.to_ageing();
  gate.info.training_data = input_.text.names;
  gate.info.training_data_sha256 = input_.text.sha256;
  gate.info.training_loss +=
      std::string("; then the ageing stage on ") +
      (pass_options_.from_full ? "KL divergence from the full cache" : "cross-entropy of the text") +
      ", end to end: " + std::to_string(state_.best_step) + " of " + std::to_string(s.steps) + " steps of " +
      std::to_string(s.batch) + " windows, keep rate down to " + s.budget() + ", pressure " + s.pressure;
  return gate;
}

}  // namespace kedge::lm
