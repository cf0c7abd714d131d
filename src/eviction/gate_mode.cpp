#include "eviction/gate_mode.h"

#include <algorithm>
#include <cmath>

#include "eviction/options.h"
#include "eviction/registry.h"

namespace kedge::eviction {
namespace {

MethodInfo budget_mode() {
  return {.name = "budget",
          .summary = "the gate only ranks: the budget says how many rows stay",
          .source = "",
          .options = {}};
}

// What both modes that discard have.
std::vector<OptionInfo> with_common(std::vector<OptionInfo> own) {
  own.push_back(integer_option("window", "128", {1, 65536}, "newest rows, which nothing is decided about yet"));
  own.push_back(integer_option("sinks", "4", {0, 65536}, "first rows, which always stay"));
  own.push_back(
      integer_option("early", "0", {0, 16777216}, "tokens at the start of the text with a weight of their own"));
  own.push_back(real_option("early-weight", "2", {0.01, 100}, "of these: the threshold is divided by it"));
  own.push_back(
      text_option("layers", "-", "weights of named layers, which divide the threshold: FIRST[-LAST]:WEIGHT[+...]"));
  return own;
}

MethodInfo threshold_mode() {
  return {.name = "threshold",
          .summary = "rows below a fixed keep probability go when they leave the window; the rate follows the text",
          .source = "KVzap, arXiv 2601.07891",
          .options = with_common({real_option("at", "0.5", {0, 1}, "keep probability below which a row goes")})};
}

MethodInfo adaptive_mode() {
  return {.name = "adaptive",
          .summary = "the threshold follows the free memory: fuller memory discards more",
          .source = "ours",
          .options = with_common({real_option("low", "0.2", {0, 1}, "threshold while all memory is free"),
                                  real_option("high", "0.8", {0, 1}, "threshold when none is; at least low"),
                                  real_option("gap", "0.05", {0, 1},
                                              "the threshold stays until it is this far from where it should be")})};
}

const std::vector<MethodInfo>& gate_modes() {
  static const std::vector<MethodInfo> modes = {budget_mode(), threshold_mode(), adaptive_mode()};
  return modes;
}

const MethodInfo* find_mode(std::string_view name) {
  const auto it = std::ranges::find(gate_modes(), name, &MethodInfo::name);
  return it == gate_modes().end() ? nullptr : &*it;
}

// Share of rows above a probability: a line through the curve's points and those of all and no rows.
double kept_above(double threshold, std::span<const gate::KeepThreshold> curve) {
  double keep = 0;  // at probability 1
  double at = 1;
  for (size_t i = 0; i <= curve.size(); ++i) {  // keep rises, the threshold falls
    const double next_keep = i < curve.size() ? static_cast<double>(curve[i].keep) : 1;
    const double next = i < curve.size() ? static_cast<double>(curve[i].threshold) : 0;
    if (threshold >= next)
      return at > next ? keep + (next_keep - keep) * (at - threshold) / (at - next) : next_keep;
    keep = next_keep;
    at = next;
  }
  return 1;
}

}  // namespace

Result<GateMode> parse_gate_mode(std::string_view text) {
  if (text.empty())
    return GateMode();
  const size_t colon = std::min(text.find(':'), text.size());
  const MethodInfo* info = find_mode(text.substr(0, colon));
  if (info == nullptr) {
    std::vector<std::string> names;
    for (const MethodInfo& one : gate_modes())
      names.push_back(one.name);
    return Error{ErrorCode::usage, "unknown gate mode " + quoted(text.substr(0, colon)) + ", did you mean '" +
                                       nearest_name(text.substr(0, colon), names) +
                                       "'? (modes: " + joined(names, ", ") + ")"};
  }
  if (colon + 1 == text.size())
    return Error{ErrorCode::usage, "no options after '" + info->name + ":'"};
  const auto given = split_options(text.substr(std::min(colon + 1, text.size())), info->name);
  if (!given)
    return given.error();
  const Result<ResolvedOptions> options = resolve_options(*info, *given);
  if (!options)
    return options.error();
  GateMode mode;
  mode.text = info->name + (options->text.empty() ? "" : ":" + options->text);
  if (info->name == "budget")
    return mode;
  const auto& number = options->values.numbers;
  mode.kind = info->name == "adaptive" ? GateMode::Kind::adaptive : GateMode::Kind::threshold;
  const bool is_adaptive = mode.kind == GateMode::Kind::adaptive;
  mode.low = number.at(is_adaptive ? "low" : "at");
  mode.high = number.at(is_adaptive ? "high" : "at");
  mode.gap = is_adaptive ? number.at("gap") : 0;
  if (mode.low > mode.high)
    return Error{ErrorCode::usage, "option 'low' of 'adaptive' is above 'high': a fuller memory would discard less"};
  mode.window = static_cast<int>(number.at("window"));
  mode.sinks = static_cast<int>(number.at("sinks"));
  mode.early = static_cast<int>(number.at("early"));
  mode.early_weight = number.at("early-weight");
  Result<std::vector<NamedLayers>> layers = read_named_layers(options->values.choices.at("layers"), info->name);
  if (!layers)
    return layers.error();
  mode.layers = *std::move(layers);
  return mode;
}

double wanted_threshold(const GateMode& mode, double free) {
  return mode.high - (mode.high - mode.low) * std::clamp(free, 0.0, 1.0);
}

double free_when_read(const GateMode& mode, const Filling& filling) {
  const auto free_at = [&](double threshold) {
    return 1 - filling.used - filling.coming * kept_above(threshold, filling.curve);
  };
  double lo = mode.low;
  double hi = mode.high;
  for (int step = 0; step < 40; ++step) {
    const double middle = (lo + hi) / 2;
    (wanted_threshold(mode, free_at(middle)) > middle ? lo : hi) = middle;
  }
  return free_at(hi);
}

double next_threshold(const GateMode& mode, double current, double free) {
  const double wanted = wanted_threshold(mode, free);
  return current < 0 || std::abs(wanted - current) > mode.gap ? wanted : current;
}

std::vector<int32_t> open_rows(const GateMode& mode, double threshold, const GatedRows& in) {
  const double in_layer = threshold / weight_of(mode.layers, in.layer).value_or(1);
  // Logits are compared, not probabilities: far out these are all 0 or 1.
  const auto logit_of = [](double p) { return p <= 0 ? -HUGE_VAL : p >= 1 ? HUGE_VAL : std::log(p / (1 - p)); };
  const double late = logit_of(in_layer);
  const double early = logit_of(in_layer / mode.early_weight);
  std::vector<int32_t> keep;
  for (int32_t row = 0; row < in.rows.n_rows; ++row) {
    const double least = in.rows.position(row) < mode.early ? early : late;
    if (in.is_protected[static_cast<size_t>(row)] != 0 || in.logit[static_cast<size_t>(row)] >= least)
      keep.push_back(row);
  }
  if (keep.empty() && in.rows.n_rows > 0)
    keep.push_back(in.rows.n_rows - 1);
  return keep;
}

}  // namespace kedge::eviction
