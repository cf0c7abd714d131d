// The training of a gate on the language-model loss: steps, judgements, states on disk.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kedge/model.h"
#include "train/documents.h"
#include "train/flops.h"
#include "train_lm/course.h"
#include "train_lm/judge.h"
#include "train_lm/late_pass.h"
#include "train_lm/learned_ageing.h"
#include "train_lm/pass.h"
#include "train_lm/passages.h"
#include "train_lm/settings.h"
#include "train_lm/state.h"

namespace kedge::lm {

// What a step was.
struct StepReport {
  int64_t step = 0;  // from 1
  StepPlan plan;
  PassResult result;
  double norm = 0;  // of the gradient, before it is cut
  int64_t n_tokens = 0;
  double seconds = 0;
};

struct TrainerInput {
  Model& model;  // the engine; its gate is replaced
  const train::Text& text;
  std::vector<train::Window> windows;
  LmSettings settings;
};

class Trainer {
 public:
  // Reads the weights, and the state of a training that was stopped. Errors: usage, failed, model_unreadable.
  static Result<std::unique_ptr<Trainer>> create(TrainerInput input);

  using Told = std::function<void(const StepReport&)>;
  using TellJudged = std::function<void(int64_t step, double in_training, double by_engine)>;
  // Until the last step, the end of patience, or `stop` (asked after each step): the state is then saved, error
  // cancelled.
  Status run(const Told& told, const TellJudged& judged, const std::function<bool()>& stop);

  const TrainState& state() const { return state_; }
  const model::HyperParams& hyper() const;  // of the model
  bool recomputes() const { return pass_options_.recompute; }
  bool is_bf16() const { return bf16_; }
  const gate::GateInfo& gate_info() const { return info_; }
  int64_t n_parameters() const {
    return (ageing_ ? ageing_->n_parameters() : gate_->n_parameters()) + lora_.n_parameters();
  }
  // The best gate, calibrated on held-out windows.
  Result<gate::Gate> best_gate() const;
  // The file of the adapter that was judged with it; empty where none learns.
  std::vector<std::byte> best_lora() const;

 private:
  explicit Trainer(TrainerInput input);
  Status start();
  Status read_first_gate(std::vector<Standard> inputs);
  std::vector<Standard> measure_inputs() const;
  void choose_recompute(int64_t longest);
  std::string made_from() const;
  Status take_state(TrainState state);
  void put_state();

  at::Tensor window_tokens(const train::Window& window) const;
  bool is_late() const { return input_.settings.learns == "ageing"; }
  // Of the stage that learns.
  const std::vector<at::Tensor>& parameters() const { return ageing_ ? ageing_->parameters() : gate_->parameters(); }
  std::vector<at::Tensor>& parameters() { return ageing_ ? ageing_->parameters() : gate_->parameters(); }
  void begin_state(std::vector<float> inputs);
  PassResult append_step(const train::Window& window, const StepPlan& plan, Gradients& gradients, StepReport& report);
  gate::Gate current_gate() const;

  // Of an ageing stage (trainer_late.cpp).
  Status read_late_gate(std::span<const float> standards);
  LateOptions late_options() const;
  LateReading read(const LateLesson& lesson) const;
  LateLesson late_lesson(const train::Window& window, uint64_t seed) const;
  LateLesson adversarial_late_lesson(const train::Window& window, const StepPlan& plan, double& flops) const;
  PassResult late_step(const train::Window& window, const StepPlan& plan, std::vector<at::Tensor>& gradients,
                       StepReport& report);
  double late_kld_in_training(std::span<const train::Window> windows) const;
  gate::Gate best_late_gate() const;

  Lesson plain_lesson(const train::Window& window) const;
  Lesson adversarial_lesson(const train::Window& window, const StepPlan& plan, double& flops) const;
  StepReport step();
  void count(const Lesson& lesson);
  Learned learned() const { return {.gate = *gate_, .lora = &lora_}; }
  std::string training_text() const;
  LearnedLora best_adapter() const;
  Status judge(const TellJudged& judged);
  double kld_in_training() const;
  std::string path(const char* name) const;

  TrainerInput input_;
  CourseOptions course_;
  PassOptions pass_options_;
  FrozenModel frozen_;
  gate::GateInfo info_;
  gate::Gate given_;  // of an ageing stage: what it began with
  std::string first_gate_sha256_;
  bool bf16_ = false;                      // products of the frozen layers
  std::unique_ptr<LearnedGate> gate_;      // frozen where an ageing stage learns; none: it asks no append stage
  std::unique_ptr<LearnedAgeing> ageing_;  // where that is what learns
  std::unique_ptr<AdamW> optimiser_;
  LearnedLora lora_;
  AdamW lora_optimiser_{std::span<const at::Tensor>()};
  std::unique_ptr<Judge> judge_;
  std::vector<train::Window> learned_, held_out_;
  Words words_;
  TrainState state_;
};

}  // namespace kedge::lm
