#include "train_lm/train_lm.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "api/model_impl.h"
#include "base/clock.h"
#include "base/output_file.h"
#include "cli/console.h"
#include "cli/engine.h"
#include "cli/signals.h"
#include "eval/progress.h"
#include "train_lm/report.h"
#include "train_lm/threads.h"
#include "train_lm/trainer.h"

namespace kedge::lm {
namespace {

namespace fs = std::filesystem;

std::string in(const LmSettings& lm, const char* name) { return (fs::path(lm.texts.out) / name).string(); }

std::string adapter_text(const LmSettings& lm) {
  if (lm.lora == 0)
    return "";
  char text[100];
  std::snprintf(text, sizeof text, ", beside a LoRA adapter of rank %d, learning rate %g", lm.lora, lm.lora_rate);
  return text;
}

std::string course_line(const LmSettings& lm, const Trainer& trainer) {
  const std::string what = lm.learns == "ageing" ? "the ageing stage learns" : "rows " + lm.rows;
  char text[500];
  std::snprintf(
      text, sizeof text,
      "%lld steps of %d window%s, loss %s, keep rate down to %s, pressure %s, %s, %.0f %% of the second "
      "half adversarial, learning rate %g, seed %llu, products in %s%s; %s%s",
      static_cast<long long>(lm.steps), lm.batch, lm.batch == 1 ? "" : "s", lm.loss.c_str(), lm.budget().c_str(),
      lm.pressure.c_str(), what.c_str(), 100 * lm.adversarial, lm.rate, static_cast<unsigned long long>(lm.seed),
      trainer.is_bf16() ? "bf16" : "f32", trainer.recomputes() ? ", layers computed twice" : "",
      lm.gate_init.empty() ? "a new gate" : ("begun with " + fs::path(lm.gate_init).filename().string()).c_str(),
      adapter_text(lm).c_str());
  return text;
}

// The lines that a training shows while it runs.
class Teller {
 public:
  Teller(const LmSettings& lm, int64_t done) : progress_(lm.texts.progress, "step"), steps_(lm.steps), first_(done) {}

  void told(const StepReport& report) {
    progress_.update(report.step, steps_);
    tokens_ += report.n_tokens;
    seconds_ += report.seconds;
    lm_loss_ += report.result.lm_loss;
    ++n_;
    if (report.step < steps_ && since_.seconds() < kQuietSeconds)
      return;
    const double each = watch_.seconds() / static_cast<double>(report.step - first_);
    char line[256];
    std::snprintf(
        line, sizeof line, "step %lld of %lld: loss %.4f, keep %.3f (level %.3f), tau %.2f, %.1f tok/s, %s left",
        static_cast<long long>(report.step), static_cast<long long>(steps_), lm_loss_ / static_cast<double>(n_),
        report.result.keep, report.plan.level, report.plan.tau, static_cast<double>(tokens_) / seconds_,
        eval::duration_text(each * static_cast<double>(steps_ - report.step)).c_str());
    progress_.line(line);
    since_ = Stopwatch();
    tokens_ = n_ = 0;
    seconds_ = lm_loss_ = 0;
  }

  void judged(int64_t step, double in_training, double by_engine) {
    char line[200];
    std::snprintf(line, sizeof line, "judged at step %lld: KL divergence %.5f in training, %.5f by the engine",
                  static_cast<long long>(step), in_training, by_engine);
    progress_.line(line);
  }

 private:
  static constexpr double kQuietSeconds = 10;  // between two lines
  cli::Progress progress_;
  int64_t steps_, first_;
  Stopwatch watch_, since_;
  int64_t tokens_ = 0, n_ = 0;
  double seconds_ = 0, lm_loss_ = 0;
};

Status write_reports(const Trainer& trainer, const LmSettings& lm, const train::Text& text) {
  const TrainState& state = trainer.state();
  const ReportFacts facts{.title = trainer.gate_info().name + ", trained on the language-model loss",
                          .data = "Learned from " + text.names,
                          .course = course_line(lm, trainer),
                          .effort = train::effort_line(state.flops, state.seconds, trainer.hyper().n_params),
                          .n_layers = trainer.hyper().n_layers};
  if (Status csv = write_file(in(lm, "lm-report.csv"), lm_report_csv(state, facts.n_layers)); !csv)
    return csv;
  return write_file(in(lm, "lm-report.html"), lm_report_html(state, facts));
}

Status finish(const Trainer& trainer, const LmSettings& lm) {
  const Result<gate::Gate> gate = trainer.best_gate();
  if (!gate)
    return gate.error();
  const std::string path = in(lm, "gate-lm.gguf");
  if (Status saved = gate::save_gate(*gate, path); !saved)
    return saved;
  const std::vector<std::byte> lora = trainer.best_lora();
  if (Status saved = lora.empty() ? Status() : write_file(in(lm, "lora.gguf"), std::span(lora)); !saved)
    return saved;
  const TrainState& state = trainer.state();
  char line[300];
  std::snprintf(line, sizeof line,
                "lm: best at step %lld: KL divergence %.5f by the engine at %s kept, %.5f at the start%s: ",
                static_cast<long long>(state.best_step), state.best_kld, lm.budget().c_str(), state.start_kld,
                state.is_over && state.step < lm.steps ? "; ended early, nothing better came" : "");
  cli::note(line + path + (lora.empty() ? "" : " and " + in(lm, "lora.gguf")));
  cli::note(train::effort_line(state.flops, state.seconds, trainer.hyper().n_params));
  return {};
}

Result<LmSettings> resolved(const cli::Settings& settings) {
  Result<LmSettings> lm = lm_settings(settings);
  if (!lm)
    return lm;
  if (settings.stage == "labels")
    return Error{ErrorCode::usage, "--stage: found 'labels', allowed 'lm' and 'both'; labels are kedge train-gate's"};
  // The labels' gate is there by now.
  if (settings.stage == "both" && lm->gate_init.empty())
    lm->gate_init = in(*lm, train::gate_file(lm->texts.inputs.front(), lm->width).c_str());
  return lm;
}

}  // namespace

Status train_lm(const cli::Settings& settings) {
  const Result<LmSettings> lm = resolved(settings);
  if (!lm)
    return lm.error();
  const int n_threads = use_threads(lm->threads);
  const Result<std::unique_ptr<Model>> model = cli::load_model(settings, settings.model);
  if (!model)
    return model.error();
  const Result<train::Text> text =
      train::read_documents(lm->texts.documents, lm->texts.held_out, *(*model)->impl().tokenizer);
  if (!text)
    return text.error();
  std::vector<train::Window> windows = train::plan_windows(text->sizes, lm->texts.plan);
  if (Status both = train::both_kinds(windows); !both)
    return both;
  std::error_code error;
  fs::create_directories(lm->texts.out, error);
  if (Status status = check_writable(in(*lm, "lm-report.csv")); !status)
    return status;
  cli::note(std::to_string(windows.size()) + " windows of " + text->names);
  const Result<std::unique_ptr<Trainer>> trainer =
      Trainer::create({.model = **model, .text = *text, .windows = std::move(windows), .settings = *lm});
  if (!trainer)
    return trainer.error();
  const int64_t done = (*trainer)->state().step;
  cli::note(course_line(*lm, **trainer) + ", " + cli::grouped((*trainer)->n_parameters()) + " weights, " +
            std::to_string(n_threads) + " thread" + (n_threads == 1 ? "" : "s") +
            (done > 0 ? "; goes on after step " + std::to_string(done) : ""));
  Status status;
  {
    Teller teller(*lm, done);
    status = (*trainer)->run(
        [&](const StepReport& report) { teller.told(report); },
        [&](int64_t step, double in_training, double by_engine) { teller.judged(step, in_training, by_engine); },
        [] { return cli::stop_requested(); });
  }
  if (Status written = write_reports(**trainer, *lm, *text); status.ok() && !written)
    status = written;
  return status.ok() ? finish(**trainer, *lm) : status;
}

}  // namespace kedge::lm
