// kedge train-gate: labels from the model itself, then gates fitted to them; no gradient through the model.
#include <algorithm>
#include <filesystem>
#include <optional>

#include "api/model_impl.h"
#include "base/clock.h"
#include "base/output_file.h"
#include "base/sha256.h"
#include "cli/console.h"
#include "cli/engine.h"
#include "cli/signals.h"
#include "cli/verbs.h"
#include "gate/open_gate.h"
#include "session/model_identity.h"
#include "train/collect.h"
#include "train/documents.h"
#include "train/fit_gate.h"
#include "train/flops.h"
#include "train/lm_program.h"
#include "train/settings.h"

namespace kedge::train {
namespace {

namespace fs = std::filesystem;

std::string shard_path(const std::string& out, size_t index) {
  char name[32];
  std::snprintf(name, sizeof name, "rows-%05zu.bin", index);
  return (fs::path(out) / name).string();
}

// What a shard depends on, but for which columns it has.
std::string made_from(const TrainSettings& train, const std::string& model, const Text& text, const Window& window) {
  const CollectOptions& c = train.collect;
  return sha256_hex(model + text.sha256 + std::to_string(window.document) + "," + std::to_string(window.begin) + "," +
                    std::to_string(window.n) + "," + std::to_string(static_cast<int>(c.labels.label)) + "," +
                    std::to_string(static_cast<int>(c.labels.norm)) + "," + std::to_string(c.labels.window) + "," +
                    std::to_string(c.sinks) + "," + std::to_string(c.share) + "," + std::to_string(c.seed));
}

bool holds(const ShardShape& shape, const Collected& what) {
  return (!what.hidden || shape.n_embd > 0) && (!what.key_value || shape.n_kv > 0) &&
         (!what.aged || shape.n_aged > 0) && (what.features & ~shape.features) == 0;
}

// The shards of all windows; those that are there already are not made again.
Result<std::vector<ShardFile>> collect(const session::Engine& engine, const std::string& model,
                                       const TrainSettings& train, const Text& text, std::span<const Window> windows,
                                       cli::Progress& progress, double& flops) {
  Collector collector(engine, train.collect);
  std::vector<ShardFile> shards;
  const Stopwatch watch;
  int64_t n_read = 0;
  for (size_t i = 0; i < windows.size(); ++i) {
    const Window& window = windows[i];
    const std::string path = shard_path(train.out, i);
    const std::string source = made_from(train, model, text, window);
    if (Result<ShardFile> there = ShardFile::open(path);
        there && there->made_from() == source && holds(there->shape(), train.collect.what)) {
      shards.push_back(*std::move(there));
    } else {
      if (cli::stop_requested())
        return Error{ErrorCode::cancelled, "stopped; what was collected stays in " + train.out};
      Result<Shard> shard = collector.read(tokens_of(text, window), i);
      if (!shard)
        return shard.error();
      shard->made_from = source;
      if (Status saved = save_shard(*shard, path); !saved)
        return saved.error();
      n_read += window.n;
      flops += label_flops(engine.model->hyper(), window.n, train.collect.labels.label != Label::future);
      if (reads_twice(shard->shape.features))
        flops += full_reading_flops(engine.model->hyper(), window.n / 2);  // before the cut, on average
      Result<ShardFile> made = ShardFile::open(path);
      if (!made)
        return made.error();
      shards.push_back(*std::move(made));
    }
    progress.update(static_cast<int64_t>(i) + 1, static_cast<int64_t>(windows.size()));
  }
  if (n_read > 0)
    cli::note("labels of " + std::to_string(n_read) + " tokens in " +
              std::to_string(static_cast<int>(watch.seconds())) + " s");
  return shards;
}

using Quality = gate::FitQuality LayerReport::*;

double mean_of(std::span<const LayerReport> layers, Quality stage, std::vector<float> gate::FitQuality::*which) {
  double sum = 0;
  double n = 0;
  for (const LayerReport& layer : layers) {
    for (const float value : layer.*stage.*which) {
      sum += static_cast<double>(value);
      ++n;
    }
  }
  return n > 0 ? sum / n : 0;
}

// The gate whose append stage is taken; nothing where one is fitted.
Result<std::optional<gate::Gate>> read_append(const std::string& path, const gate::GateModel& model) {
  if (path.empty())
    return std::optional<gate::Gate>();
  Result<gate::OpenGate> opened = gate::open_gate(path, model);
  if (!opened)
    return opened.error();
  if (const std::string& input = opened->gate.info.input; input != "hidden")
    return Error{ErrorCode::usage,
                 "--gate-init " + path + ": found a gate of the input '" + input + "', allowed 'hidden'"};
  return std::optional<gate::Gate>(std::move(opened->gate));
}

// Where the gates' common facts come from, and what they are fitted to.
struct Lesson {
  gate::GateInfo info;
  std::optional<gate::Gate> append;
  std::vector<ShardFile> learned;
  std::vector<ShardFile> judged;
};

// " R^2 .597, rank correlation .761" of what one stage said of held-out rows; empty: it said nothing.
std::string quality_text(std::span<const LayerReport> layers, Quality stage) {
  if ((layers.front().*stage).r2.empty())
    return {};
  char text[96];
  std::snprintf(text, sizeof text, " R^2 %.3f, rank correlation %.3f", mean_of(layers, stage, &gate::FitQuality::r2),
                mean_of(layers, stage, &gate::FitQuality::spearman));
  return text;
}

// Fits a gate of `width` hidden units (0: linear), saves it and says how good it is; its lines of the report.
Result<std::string> fit_and_save(const Lesson& lesson, const TrainSettings& train, GateInput input, int width,
                                 Executor& executor) {
  const std::string name = gate_name(input, width);
  FitOptions options = train.fit;
  options.width = width;
  options.append = lesson.append ? &*lesson.append : nullptr;
  cli::Progress progress(train.progress, name + " gate, layer");
  const auto told = [&](const LayerReport& report) {
    progress.update(report.layer + 1, lesson.info.model.n_layers);
    return !cli::stop_requested();
  };
  const Stopwatch watch;
  Result<FittedGate> fitted = fit_gate({lesson.learned, lesson.judged}, input, lesson.info, options, executor, told);
  if (!fitted)
    return fitted.error();
  const std::string path = (fs::path(train.out) / gate_file(input, width)).string();
  if (Status saved = gate::save_gate(fitted->gate, path); !saved)
    return saved.error();
  const std::string append = quality_text(fitted->layers, &LayerReport::held_out);
  const std::string late = quality_text(fitted->layers, &LayerReport::late);
  cli::note(name + ": held-out" + append + (late.empty() ? "" : (append.empty() ? "" : ";") + (" at a cut" + late)) +
            ", fitted in " + std::to_string(static_cast<int>(watch.seconds())) + " s: " + path);
  return report_csv(name, fitted->layers);
}

Status run(const cli::Settings& settings) {
  const Result<TrainSettings> train = train_settings(settings);
  if (!train)
    return train.error();
  const Result<std::unique_ptr<Model>> model = cli::load_model(settings, settings.model);
  if (!model)
    return model.error();
  const session::Engine engine = (*model)->impl().engine();
  const Result<Text> text = read_documents(train->documents, train->held_out, *engine.tokenizer);
  if (!text)
    return text.error();
  const std::vector<Window> windows = plan_windows(text->sizes, train->plan);
  if (Status both = both_kinds(windows); !both)
    return both;
  std::error_code error;
  fs::create_directories(train->out, error);
  if (Status status = check_writable((fs::path(train->out) / "report.csv").string()); !status)
    return status;
  cli::note(std::to_string(windows.size()) + " windows of " + text->names);
  cli::Progress progress(train->progress, "window");
  Lesson lesson{.info = {.name = engine.model->hyper().name + " gate",
                         .model = session::gate_model(*engine.model),
                         .window = train->collect.labels.window,
                         .sinks = train->collect.sinks,
                         .training_data = text->names,
                         .training_data_sha256 = text->sha256,
                         .training_loss = "squared error of log labels (" + train->label_name + ")"},
                .append = {},
                .learned = {},
                .judged = {}};
  Result<std::optional<gate::Gate>> append = read_append(train->gate_init, lesson.info.model);
  if (!append)
    return append.error();
  lesson.append = *std::move(append);
  if (lesson.append)
    lesson.info.training_loss += "; append stage: " + lesson.append->info.training_loss;
  const Stopwatch watch;
  double flops = 0;
  Result<std::vector<ShardFile>> shards =
      collect(engine, lesson.info.model.sha256, *train, *text, windows, progress, flops);
  if (!shards)
    return shards.error();
  for (size_t i = 0; i < windows.size(); ++i)
    (windows[i].held_out ? lesson.judged : lesson.learned).push_back(std::move((*shards)[i]));
  std::vector<int> widths = {0};
  if (train->fit.width > 0)
    widths.push_back(train->fit.width);
  std::string csv = "gate,stage,layer,head,r2,spearman\n";
  for (const GateInput input : train->inputs) {
    for (const int width : widths) {
      const Result<std::string> lines = fit_and_save(lesson, *train, input, width, *engine.compute);
      if (!lines)
        return lines.error();
      csv += *lines;
      for (const ShardFile& shard : lesson.learned) {
        if (append_input(input) != "none" && !lesson.append)
          flops += fit_flops(engine.model->hyper(), width, shard.shape().n_rows, train->fit.epochs);
      }
    }
  }
  cli::note(effort_line(flops, watch.seconds(), engine.model->hyper().n_params));
  return write_file((fs::path(train->out) / "report.csv").string(), csv);
}

}  // namespace
}  // namespace kedge::train

namespace kedge::cli {

int train_gate_verb(const Settings& settings) {
  // Before the labels' hours: what comes after them is there.
  if (const Status there = settings.stage == "labels" ? Status() : train::find_lm_program(); !there)
    return report(there.error());
  if (settings.stage != "lm") {
    if (const Status status = train::run(settings); !status)
      return report(status.error());
  }
  if (settings.stage == "labels")
    return 0;
  return report(train::become_lm_program(settings.args));
}

}  // namespace kedge::cli
