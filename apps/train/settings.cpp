#include "train/settings.h"

#include <algorithm>
#include <array>
#include <sstream>
#include <utility>

#include "eval/config.h"

namespace kedge::train {
namespace {

std::vector<std::string> names_of(const std::string& list) {
  std::vector<std::string> names;
  std::istringstream stream(list);
  for (std::string name; std::getline(stream, name, ',');) {
    if (!name.empty())
      names.push_back(name);
  }
  return names;
}

constexpr int kMostAgeingWindow = 1024;  // queries that a session keeps for scorers

// By GateInput.
constexpr std::array<const char*, 9> kInputNames = {"hidden", "key-value", "access",   "attention", "window",
                                                    "all",    "echo",      "all-echo", "anchor"};
constexpr const char* kInputsAllowed = "hidden, key-value, access, attention, window, all, echo, all-echo, anchor";

Result<std::vector<GateInput>> inputs_of(const std::string& list) {
  std::vector<GateInput> inputs;
  for (const std::string& name : names_of(list)) {
    const auto* const found = std::ranges::find(kInputNames, name);
    const auto input = static_cast<GateInput>(found - kInputNames.begin());
    if (found == kInputNames.end() || std::ranges::count(inputs, input) > 0) {
      return Error{ErrorCode::usage, "--gate-input: found '" + name + "'" +
                                         (found == kInputNames.end() ? "" : " twice") + ", allowed " + kInputsAllowed +
                                         ", each once"};
    }
    inputs.push_back(input);
  }
  if (inputs.empty())
    return Error{ErrorCode::usage, "--gate-input: found '" + list + "', allowed " + kInputsAllowed};
  return inputs;
}

// What the gates of all inputs are fitted to; several compare at a cut.
Collected collected_by(const std::vector<GateInput>& inputs) {
  Collected what{.hidden = false, .key_value = false, .aged = inputs.size() > 1};
  for (const GateInput input : inputs) {
    what.hidden |= append_input(input) == "hidden";
    what.key_value |= append_input(input) == "key_value";
    what.aged |= !ageing_features(input).empty();
    what.features |= set_of(ageing_features(input)) & measured_features();
  }
  return what;
}

// Of a gate that gives its append stage, an ageing stage is what is left to be fitted.
Status only_ageing(const std::vector<GateInput>& inputs) {
  for (const GateInput input : inputs) {
    if (append_input(input) != "hidden" || ageing_features(input).empty())
      return Error{ErrorCode::usage,
                   "--gate-input: found '" + input_name(input) +
                       "', allowed with --gate-init and --stage labels: window, all, all-echo, anchor"};
  }
  return {};
}

Label label_of(const std::string& name) {
  return name == "future" ? Label::future : name == "repeat" ? Label::repeat : Label::both;
}

}  // namespace

std::string input_name(GateInput input) { return kInputNames.at(static_cast<size_t>(input)); }

std::string gate_name(GateInput input, int width) {
  return (input == GateInput::hidden ? "" : input_name(input) + "-") + (width == 0 ? "linear" : "mlp");
}

std::string gate_file(GateInput input, int width) { return "gate-" + gate_name(input, width) + ".gguf"; }

Result<TrainSettings> train_settings(const cli::Settings& settings) {
  if (settings.positional.empty())
    return Error{ErrorCode::usage, "no documents: give the files to learn from"};
  if (settings.gate_out.empty())
    return Error{ErrorCode::usage, "no folder: --gate-out DIR says where labels and gates go"};
  Result<std::vector<int64_t>> lengths = eval::parse_lengths(settings.train_lengths, "--train-lengths");
  if (!lengths)
    return lengths.error();
  Result<std::vector<GateInput>> inputs = inputs_of(settings.gate_input);
  if (!inputs)
    return inputs.error();
  if (Status allowed = settings.stage == "labels" && !settings.gate_init.empty() ? only_ageing(*inputs) : Status();
      !allowed)
    return allowed.error();
  const Collected what = collected_by(*inputs);
  if (what.aged && settings.gate_window > kMostAgeingWindow)
    return Error{ErrorCode::usage, "--gate-window: found " + std::to_string(settings.gate_window) +
                                       ", allowed with --gate-input " + settings.gate_input + " 1.." +
                                       std::to_string(kMostAgeingWindow)};
  TrainSettings train{
      .documents = settings.positional,
      .held_out = names_of(settings.held_out),
      .out = settings.gate_out,
      .label_name = settings.gate_label,
      .inputs = *std::move(inputs),
      .gate_init = settings.stage == "labels" ? settings.gate_init : "",
      .progress = settings.progress,
      .plan = {.n_tokens = settings.train_tokens, .lengths = *std::move(lengths)},
      .collect = {.what = what,
                  .labels = {.label = label_of(settings.gate_label),
                             .norm = settings.gate_label_norm == "value" ? LabelNorm::value : LabelNorm::change,
                             .window = settings.gate_window},
                  .share = static_cast<double>(settings.train_share)},
      .fit = {.width = settings.gate_width, .epochs = settings.gate_epochs}};
  for (const int64_t length : train.plan.lengths) {
    if (length < 4 * train.collect.labels.window || length > 65536)
      return Error{ErrorCode::usage, "--train-lengths: found " + std::to_string(length) + ", allowed " +
                                         std::to_string(4 * train.collect.labels.window) + " (four windows) to 65536"};
  }
  return train;
}

}  // namespace kedge::train
