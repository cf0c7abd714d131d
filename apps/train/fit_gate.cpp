#include "train/fit_gate.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/clock.h"
#include "train/fit_ageing.h"

namespace kedge::train {
namespace {

Status usable(std::span<const ShardFile> shards, const ShardShape& shape, const gate::GateInfo& info,
              FeatureSet asked) {
  const auto n_inputs = static_cast<uint32_t>(gate::input_size(info));
  for (const ShardFile& shard : shards) {
    const ShardShape& other = shard.shape();
    if (other.n_layers != shape.n_layers || other.n_heads != shape.n_heads)
      return Error{ErrorCode::failed, "labelled rows of different models: delete them and collect anew"};
    const uint32_t found = info.input == "key_value" ? other.n_kv : other.n_embd;
    if (n_inputs > 0 && found != n_inputs)
      return Error{ErrorCode::failed, "labelled rows for the input '" + info.input + "': found " +
                                          std::to_string(found) + " columns, allowed " + std::to_string(n_inputs)};
    if ((asked & ~other.features) != 0)
      return Error{ErrorCode::failed, "labelled rows for an ageing stage: found without " +
                                          gate::feature_names(features_of(asked & ~other.features))};
  }
  return {};
}

Result<gate::LayerGate> fit_layer(const gate::Examples& train, const gate::Examples& held_out,
                                  const FitOptions& options, Executor& executor) {
  if (options.width == 0)
    return gate::fit_linear(train, {.ridge = options.ridge}, executor);
  return gate::fit_mlp(train, held_out, {.width = options.width, .epochs = options.epochs, .seed = options.seed},
                       executor, {});
}

Error of_layer(const Error& error, int layer) {
  return {error.code, "layer " + std::to_string(layer) + ": " + error.message};
}

const Error kStopped{ErrorCode::cancelled, "stopped while a gate was fitted"};

// Where logits of held-out rows lie. Logits as they come are logs of weights, far below 0: they are moved.
struct Middle {
  std::vector<float> logits;
  void add(const std::vector<std::vector<float>>& heads) {
    for (const std::vector<float>& head : heads)
      logits.insert(logits.end(), head.begin(), head.end());
  }
  // The value above which the share `keep` lies; the logits must be sorted.
  float above(double keep) const {
    const auto at = static_cast<size_t>((1 - keep) * static_cast<double>(logits.size()));
    return logits[std::min(at, logits.size() - 1)];
  }
  // Half of them above 0, and where other shares lie then.
  template <typename Layers>
  std::vector<gate::KeepThreshold> move(Layers& layers) {
    std::ranges::sort(logits);
    const float middle = above(0.5);
    for (auto& layer : layers) {
      for (float& offset : layer.b2)
        offset -= middle;
    }
    std::vector<gate::KeepThreshold> thresholds;
    for (int tenth = 1; tenth <= 9; ++tenth) {
      const float logit = above(tenth / 10.0) - middle;
      thresholds.push_back({.keep = static_cast<float>(tenth) / 10, .threshold = 1 / (1 + std::exp(-logit))});
    }
    return thresholds;
  }
};

// One gate while it is fitted.
class Fit {
 public:
  Fit(const Lessons& lessons, const FitOptions& options, Executor& executor, FittedGate& out)
      : lessons_(lessons), options_(options), executor_(executor), out_(out) {}

  Status append_stage(const FitProgress& progress) {
    gate::Gate& gate = out_.gate;
    Middle middle;
    for (LayerReport& report : out_.layers) {
      const Stopwatch watch;
      const Rows judged = rows_of(lessons_.held_out, report.layer, gate.info);
      Result<gate::LayerGate> own = append_layer(report.layer, judged);
      if (!own)
        return of_layer(own.error(), report.layer);
      const auto said = gate::logits_by_head(*own, gate.info, judged.examples());
      middle.add(said);
      if (options_.append == nullptr)  // else its logits have been moved, or fitted to something else
        report.held_out = gate::quality(said, judged.examples());
      report.seconds = watch.seconds();
      gate.layers.push_back(*std::move(own));
      if (progress && !progress(report))
        return kStopped;
    }
    gate.thresholds = middle.move(gate.layers);
    return {};
  }

  Status ageing_stage(const FitProgress& progress) {
    gate::Ageing& ageing = out_.gate.ageing;
    Middle middle;
    for (LayerReport& report : out_.layers) {
      const Stopwatch watch;
      const AgedRows learned = aged_rows(lessons_.train, report.layer, out_.gate);
      const AgedRows judged = aged_rows(lessons_.held_out, report.layer, out_.gate);
      Result<gate::AgeingLayer> own = fit_ageing_layer(learned, judged, options_, executor_);
      if (!own)
        return of_layer(own.error(), report.layer);
      ageing.layers.push_back(*std::move(own));
      middle.add(aged_logits(judged, report.layer, ageing));
      report.seconds += watch.seconds();
      if (progress && !progress(report))
        return kStopped;
    }
    std::vector<gate::KeepThreshold> thresholds = middle.move(ageing.layers);
    if (out_.gate.layers.empty())
      out_.gate.thresholds = std::move(thresholds);
    return {};
  }

 private:
  Result<gate::LayerGate> append_layer(int layer, const Rows& judged) const {
    if (options_.append != nullptr)
      return options_.append->layers[static_cast<size_t>(layer)];
    const Rows learned = rows_of(lessons_.train, layer, out_.gate.info);
    return fit_layer(learned.examples(), judged.examples(), options_, executor_);
  }

  const Lessons& lessons_;
  const FitOptions& options_;
  Executor& executor_;
  FittedGate& out_;
};

void add_line(std::string& csv, const std::string& name, const char* stage, const LayerReport& layer) {
  const gate::FitQuality& quality = stage == std::string("append") ? layer.held_out : layer.late;
  for (size_t head = 0; head < quality.r2.size(); ++head) {
    char line[160];
    std::snprintf(line, sizeof line, "%s,%s,%d,%zu,%.4f,%.4f\n", name.c_str(), stage, layer.layer, head,
                  static_cast<double>(quality.r2[head]), static_cast<double>(quality.spearman[head]));
    csv += line;
  }
}

}  // namespace

std::string append_input(GateInput input) {
  if (input == GateInput::access || input == GateInput::attention || input == GateInput::echo)
    return "none";
  return input == GateInput::key_value ? "key_value" : "hidden";
}

std::vector<gate::Feature> ageing_features(GateInput input) {
  using gate::Feature;
  switch (input) {
    case GateInput::hidden:
    case GateInput::key_value:
      return {};
    case GateInput::access:
      return {Feature::attention, Feature::last_access, Feature::age};
    case GateInput::attention:
      return {Feature::window_max, Feature::window_mean};
    case GateInput::window:
      return {Feature::logit, Feature::window_max, Feature::window_mean, Feature::last_access,
              Feature::age,   Feature::key_norm,   Feature::value_norm};
    case GateInput::all:
      return {Feature::logit,       Feature::attention, Feature::window_max, Feature::window_mean,
              Feature::last_access, Feature::age,       Feature::key_norm,   Feature::value_norm};
    case GateInput::echo:
      return {Feature::past, Feature::echo, Feature::age};
    case GateInput::anchor: {
      std::vector<Feature> features = ageing_features(GateInput::window);
      features.push_back(Feature::anchor);
      return features;
    }
    case GateInput::all_echo: {
      std::vector<Feature> features = ageing_features(GateInput::all);
      features.insert(features.end(), {Feature::past, Feature::echo});
      return features;
    }
  }
  return {};
}

void calibrate(gate::Gate& gate, std::vector<float> logits) {
  gate.thresholds = Middle{std::move(logits)}.move(gate.layers);
}

Result<FittedGate> fit_gate(const Lessons& lessons, GateInput input, const gate::GateInfo& info,
                            const FitOptions& options, Executor& executor, const FitProgress& progress) {
  if (lessons.train.empty() || lessons.held_out.empty())
    return Error{ErrorCode::failed, "a gate needs rows to learn from and rows to be judged by: found " +
                                        std::to_string(lessons.train.size()) + " and " +
                                        std::to_string(lessons.held_out.size()) + " windows"};
  const ShardShape shape = lessons.train.front().shape();
  FittedGate fitted{.gate = {.info = info, .layers = {}}, .layers = {}};
  gate::GateInfo& own = fitted.gate.info;
  own.input = append_input(input);
  own.width = own.input == "none" ? 0 : options.append != nullptr ? options.append->info.width : options.width;
  gate::AgeingInfo& ageing = fitted.gate.ageing.info;
  ageing.features = ageing_features(input);
  const bool is_ageing = !ageing.features.empty();
  ageing.width = is_ageing && options.width > 0 ? kAgeingWidth : 0;
  ageing.window = is_ageing ? info.window : 0;
  for (const std::span<const ShardFile> shards : {lessons.train, lessons.held_out}) {
    if (Status status = usable(shards, shape, own, set_of(ageing.features) & measured_features()); !status)
      return status.error();
  }
  for (int layer = 0; layer < static_cast<int>(shape.n_layers); ++layer)
    fitted.layers.push_back({.layer = layer, .held_out = {}, .late = {}});
  Fit fit(lessons, options, executor, fitted);
  Status status;
  if (own.input != "none")
    status = fit.append_stage(is_ageing ? FitProgress() : progress);
  if (status && is_ageing)
    status = fit.ageing_stage(progress);
  if (!status)
    return status.error();
  for (LayerReport& report : fitted.layers) {
    if (shape.n_aged > 0)
      report.late = late_quality(lessons.held_out, report.layer, fitted.gate);
  }
  return fitted;
}

std::string report_csv(const std::string& name, std::span<const LayerReport> layers) {
  std::string csv;
  for (const char* stage : {"append", "late"}) {
    for (const LayerReport& layer : layers)
      add_line(csv, name, stage, layer);
  }
  return csv;
}

}  // namespace kedge::train
