// The sidecar: a GGUF file.
//   keys     general.architecture "kedge-gate", general.name, kedge_gate.version
//            kedge_gate.model.{architecture, sha256, n_layers, n_embd, n_kv_heads, head_dim}
//            kedge_gate.{input, width, window, sinks}, kedge_gate.training.{data, data_sha256, loss}
//            kedge_gate.ranks: "head" where it is missing
//            kedge_gate.ageing.{features, width, window}: names with commas, in their order; "": no ageing stage
//   tensors  gate.N.w1 [width, n_inputs], gate.N.b1 [width] (not where linear)
//            gate.N.w2 [n_kv_heads, width or n_inputs], gate.N.b2 [n_kv_heads]; none of the four for input "none"
//            gate.N.age_w1 [n_kv_heads * width, n_features], gate.N.age_b1 [n_kv_heads * width] (not where linear)
//            gate.N.age_w2 [n_kv_heads, width or n_features], gate.N.age_b2 [n_kv_heads]; with an ageing stage
//            gate.thresholds f32 [n, 2]: keep, threshold (optional)
// Version 1 has neither head_dim nor the keys of ageing, and the input "hidden"; such gates are still written so.
#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>

#include "base/output_file.h"
#include "gate/gate.h"
#include "tensor/gguf_writer.h"
#include "tensor/types.h"

namespace kedge::gate {
namespace {

constexpr int kMostLayers = 4096;
constexpr int kMostColumns = 1 << 20;
constexpr int kMostWindow = 1024;  // queries that a session keeps for scorers
constexpr const char* kThresholds = "gate.thresholds";

std::string at(int layer, const char* name) { return "gate." + std::to_string(layer) + "." + name; }

// Reads keys until the first error, which it keeps.
class Keys {
 public:
  explicit Keys(const tensor::GgufFile& file) : file_(file) {}
  int number(const std::string& key, int low, int high) {
    const Result<uint32_t> found = file_.get_u32(key);
    if (!found)
      return keep(found.error());
    if (*found < static_cast<uint32_t>(low) || *found > static_cast<uint32_t>(high))
      return keep({ErrorCode::model_unreadable, file_.path() + ": key '" + key + "': found " + std::to_string(*found) +
                                                    ", allowed " + std::to_string(low) + ".." + std::to_string(high)});
    return static_cast<int>(*found);
  }
  std::string text(const std::string& key) {
    Result<std::string> found = file_.get_string(key);
    if (found)
      return *std::move(found);
    keep(found.error());
    return {};
  }
  std::string one_of(const std::string& key, std::span<const char* const> allowed) {
    return checked(key, text(key), allowed);
  }
  // The first of what is allowed where the key is missing.
  std::string one_of_or_first(const std::string& key, std::span<const char* const> allowed) {
    Result<std::string> found = file_.get_string_or(key, allowed.front());
    if (found)
      return checked(key, *std::move(found), allowed);
    keep(found.error());
    return {};
  }
  void refuse(const std::string& key, const std::string& found, const std::string& allowed) {
    keep(
        {ErrorCode::model_unreadable, file_.path() + ": key '" + key + "': found '" + found + "', allowed " + allowed});
  }
  const Status& status() const { return status_; }

 private:
  std::string checked(const std::string& key, std::string found, std::span<const char* const> allowed) {
    std::string names;
    for (const char* name : allowed)
      names += (names.empty() ? "'" : ", '") + std::string(name) + "'";
    if (std::ranges::find(allowed, found) == allowed.end())
      refuse(key, found, names);
    return found;
  }
  int keep(const Error& error) {
    if (status_.ok())
      status_ = error;
    return 0;
  }
  const tensor::GgufFile& file_;
  Status status_;
};

// Dequantised, row by row.
Result<std::vector<float>> values_of(const tensor::GgufFile& file, const std::string& name, int64_t n_cols,
                                     int64_t n_rows) {
  const Result<const tensor::TensorInfo*> info = file.require(name, {n_cols, n_rows});
  if (!info)
    return info.error();
  const int type = (*info)->type;
  if (!tensor::can_get_rows(type))
    return Error{ErrorCode::model_unreadable, file.path() + ": tensor '" + name + "': found type " +
                                                  tensor::type_name(type) + ", allowed f32, f16 and quantised types"};
  std::vector<float> values(static_cast<size_t>((*info)->ne[0] * (*info)->ne[1]));
  tensor::rows_to_f32(type, (*info)->ne[0], (*info)->data, values);
  for (const float value : values) {
    if (!std::isfinite(value))
      return Error{ErrorCode::model_unreadable,
                   file.path() + ": tensor '" + name + "': found a number that is not finite, allowed finite ones"};
  }
  return values;
}

void put_append_stage(const Gate& gate, tensor::GgufWriter& file) {
  const GateInfo& info = gate.info;
  const int n_inputs = input_size(info);
  for (int layer = 0; n_inputs > 0 && layer < info.model.n_layers; ++layer) {
    const LayerGate& own = gate.layers[static_cast<size_t>(layer)];
    if (info.width > 0) {
      file.tensor(at(layer, "w1"), own.w1, info.width, n_inputs, tensor::StoredAs::q8_0);
      file.tensor(at(layer, "b1"), own.b1, 0, info.width);
    }
    file.tensor(at(layer, "w2"), own.w2, info.model.n_kv_heads, info.width > 0 ? info.width : n_inputs,
                tensor::StoredAs::q8_0);
    file.tensor(at(layer, "b2"), own.b2, 0, info.model.n_kv_heads);
  }
}

// All f32: they are few, and their inputs are logarithms that need no fewer bits than they have.
void put_ageing_stage(const Gate& gate, tensor::GgufWriter& file) {
  const AgeingInfo& info = gate.ageing.info;
  const int n_heads = gate.info.model.n_kv_heads;
  for (size_t layer = 0; layer < gate.ageing.layers.size(); ++layer) {
    const AgeingLayer& own = gate.ageing.layers[layer];
    const auto name = [&](const char* what) { return at(static_cast<int>(layer), what); };
    if (info.width > 0) {
      file.tensor(name("age_w1"), own.w1, int64_t{n_heads} * info.width, info.n_features());
      file.tensor(name("age_b1"), own.b1, 0, int64_t{n_heads} * info.width);
    }
    file.tensor(name("age_w2"), own.w2, n_heads, info.n_hidden());
    file.tensor(name("age_b2"), own.b2, 0, n_heads);
  }
}

// Reads tensors until the first error, which it keeps.
class Tensors {
 public:
  explicit Tensors(const tensor::GgufFile& file) : file_(file) {}
  std::vector<float> take(const std::string& name, int64_t n_cols, int64_t n_rows) {
    Result<std::vector<float>> values = status_.ok() ? values_of(file_, name, n_cols, n_rows) : std::vector<float>();
    if (!values)
      status_ = values.error();
    return values ? *std::move(values) : std::vector<float>();
  }
  const Status& status() const { return status_; }

 private:
  const tensor::GgufFile& file_;
  Status status_;
};

void take_append_stage(Tensors& tensors, Gate& gate) {
  const GateInfo& info = gate.info;
  const int n_inputs = input_size(info);
  for (int layer = 0; n_inputs > 0 && layer < info.model.n_layers; ++layer) {
    LayerGate& own = gate.layers.emplace_back();
    if (info.width > 0) {
      own.w1 = tensors.take(at(layer, "w1"), n_inputs, info.width);
      own.b1 = tensors.take(at(layer, "b1"), info.width, 1);
    }
    own.w2 = tensors.take(at(layer, "w2"), info.width > 0 ? info.width : n_inputs, info.model.n_kv_heads);
    own.b2 = tensors.take(at(layer, "b2"), info.model.n_kv_heads, 1);
  }
}

void take_ageing_stage(Tensors& tensors, Gate& gate) {
  const AgeingInfo& info = gate.ageing.info;
  const int n_heads = gate.info.model.n_kv_heads;
  for (int layer = 0; info.n_features() > 0 && layer < gate.info.model.n_layers; ++layer) {
    AgeingLayer& own = gate.ageing.layers.emplace_back();
    if (info.width > 0) {
      own.w1 = tensors.take(at(layer, "age_w1"), info.n_features(), int64_t{n_heads} * info.width);
      own.b1 = tensors.take(at(layer, "age_b1"), int64_t{n_heads} * info.width, 1);
    }
    own.w2 = tensors.take(at(layer, "age_w2"), info.n_hidden(), n_heads);
    own.b2 = tensors.take(at(layer, "age_b2"), n_heads, 1);
  }
}

// Keys that version 1 does not have.
void read_later_keys(Keys& keys, Gate& gate) {
  constexpr const char* kFeatureKey = "kedge_gate.ageing.features";
  gate.info.model.head_dim = keys.number("kedge_gate.model.head_dim", 1, kMostColumns);
  gate.info.input = keys.one_of("kedge_gate.input", kInputs);
  gate.info.ranks = keys.one_of_or_first("kedge_gate.ranks", kRanks);
  AgeingInfo& ageing = gate.ageing.info;
  const std::string text = keys.text(kFeatureKey);
  std::istringstream names(text);
  for (std::string name; std::getline(names, name, ',');) {
    const std::optional<Feature> feature = feature_of(name);
    if (!feature)
      return keys.refuse(kFeatureKey, name, all_feature_names());
    if (ageing.asks(*feature))
      return keys.refuse(kFeatureKey, text, "each feature once");
    ageing.features.push_back(*feature);
  }
  ageing.width = keys.number("kedge_gate.ageing.width", 0, kMostColumns);
  ageing.window = keys.number("kedge_gate.ageing.window", 0, kMostWindow);
  if (gate.info.input != "none")
    return;
  if (ageing.asks(Feature::logit))
    keys.refuse(kFeatureKey, "logit", "with the input 'none' all others: there is no append stage that says it");
  if (ageing.features.empty())
    keys.refuse(kFeatureKey, "", "with the input 'none' at least one: " + all_feature_names());
}

}  // namespace

uint32_t gate_version(const Gate& gate) {
  const bool first = gate.info.input == "hidden" && gate.info.ranks == "head" && gate.ageing.info.features.empty();
  return first ? 1 : kGateVersion;
}

std::vector<std::byte> gate_bytes(const Gate& gate) {
  const GateInfo& info = gate.info;
  tensor::GgufWriter file;
  file.text("general.architecture", kGateArchitecture);
  file.text("general.name", info.name);
  file.number("kedge_gate.version", gate_version(gate));
  file.text("kedge_gate.model.architecture", info.model.architecture);
  file.text("kedge_gate.model.sha256", info.model.sha256);
  file.number("kedge_gate.model.n_layers", static_cast<uint32_t>(info.model.n_layers));
  file.number("kedge_gate.model.n_embd", static_cast<uint32_t>(info.model.n_embd));
  file.number("kedge_gate.model.n_kv_heads", static_cast<uint32_t>(info.model.n_kv_heads));
  file.text("kedge_gate.input", info.input);
  file.number("kedge_gate.width", static_cast<uint32_t>(info.width));
  file.number("kedge_gate.window", static_cast<uint32_t>(info.window));
  file.number("kedge_gate.sinks", static_cast<uint32_t>(info.sinks));
  file.text("kedge_gate.training.data", info.training_data);
  file.text("kedge_gate.training.data_sha256", info.training_data_sha256);
  file.text("kedge_gate.training.loss", info.training_loss);
  if (gate_version(gate) > 1) {
    file.number("kedge_gate.model.head_dim", static_cast<uint32_t>(info.model.head_dim));
    file.text("kedge_gate.ranks", info.ranks);
    file.text("kedge_gate.ageing.features", feature_names(gate.ageing.info.features));
    file.number("kedge_gate.ageing.width", static_cast<uint32_t>(gate.ageing.info.width));
    file.number("kedge_gate.ageing.window", static_cast<uint32_t>(gate.ageing.info.window));
  }
  put_append_stage(gate, file);
  put_ageing_stage(gate, file);
  std::vector<float> thresholds;
  for (const KeepThreshold& one : gate.thresholds)
    thresholds.insert(thresholds.end(), {one.keep, one.threshold});
  if (!thresholds.empty())
    file.tensor(kThresholds, thresholds, static_cast<int64_t>(gate.thresholds.size()), 2);
  return file.bytes();
}

Result<Gate> read_gate(const tensor::GgufFile& file) {
  Keys keys(file);
  Gate gate;
  GateInfo& info = gate.info;
  const char* const architecture[] = {kGateArchitecture};
  keys.one_of("general.architecture", architecture);
  const int version = keys.number("kedge_gate.version", 1, kGateVersion);
  info.name = keys.text("general.name");
  info.model.architecture = keys.text("kedge_gate.model.architecture");
  info.model.sha256 = keys.text("kedge_gate.model.sha256");
  info.model.n_layers = keys.number("kedge_gate.model.n_layers", 1, kMostLayers);
  info.model.n_embd = keys.number("kedge_gate.model.n_embd", 1, kMostColumns);
  info.model.n_kv_heads = keys.number("kedge_gate.model.n_kv_heads", 1, kMostLayers);
  if (version == 1)
    info.input = keys.one_of("kedge_gate.input", std::span(kInputs).first(1));
  else
    read_later_keys(keys, gate);
  info.width = keys.number("kedge_gate.width", 0, kMostColumns);
  info.window = keys.number("kedge_gate.window", 0, INT32_MAX);
  info.sinks = keys.number("kedge_gate.sinks", 0, INT32_MAX);
  info.training_data = keys.text("kedge_gate.training.data");
  info.training_data_sha256 = keys.text("kedge_gate.training.data_sha256");
  info.training_loss = keys.text("kedge_gate.training.loss");
  if (!keys.status())
    return keys.status().error();
  Tensors tensors(file);
  take_append_stage(tensors, gate);
  take_ageing_stage(tensors, gate);
  const std::vector<float> pairs =
      file.find(kThresholds) == nullptr ? std::vector<float>() : tensors.take(kThresholds, 2, 0);
  if (!tensors.status())
    return tensors.status().error();
  for (size_t i = 0; i + 1 < pairs.size(); i += 2)
    gate.thresholds.push_back({.keep = pairs[i], .threshold = pairs[i + 1]});
  return gate;
}

Status save_gate(const Gate& gate, const std::string& path) { return write_file(path, gate_bytes(gate)); }

Status same_model(const GateModel& gate, const GateModel& model, const std::string& path) {
  const auto differs = [&path](const std::string& what, const std::string& found, const std::string& allowed) {
    return Error{ErrorCode::model_unreadable,
                 path + ": a gate for another model: " + what + ": found " + found + ", the model has " + allowed};
  };
  if (gate.architecture != model.architecture)
    return differs("architecture", "'" + gate.architecture + "'", "'" + model.architecture + "'");
  if (gate.n_layers != model.n_layers)
    return differs("layers", std::to_string(gate.n_layers), std::to_string(model.n_layers));
  if (gate.n_embd != model.n_embd)
    return differs("embedding length", std::to_string(gate.n_embd), std::to_string(model.n_embd));
  if (gate.n_kv_heads != model.n_kv_heads)
    return differs("kv heads", std::to_string(gate.n_kv_heads), std::to_string(model.n_kv_heads));
  if (gate.head_dim > 0 && gate.head_dim != model.head_dim)
    return differs("dimensions of a head", std::to_string(gate.head_dim), std::to_string(model.head_dim));
  if (gate.sha256 != model.sha256)
    return differs("SHA-256 of the model", gate.sha256, model.sha256);
  return {};
}

}  // namespace kedge::gate
