// The sidecar: a GGUF file.
//   keys     general.architecture "kedge-gate", general.name, kedge_gate.version
//            kedge_gate.model.{architecture, sha256, n_layers, n_embd, n_kv_heads}
//            kedge_gate.{input, width, window, sinks}, kedge_gate.training.{data, data_sha256, loss}
//   tensors  gate.N.w1 [width, n_embd], gate.N.b1 [width] (not where linear)
//            gate.N.w2 [n_kv_heads, width or n_embd], gate.N.b2 [n_kv_heads]
//            gate.thresholds f32 [n, 2]: keep, threshold (optional)
#include <cmath>
#include <utility>

#include "base/output_file.h"
#include "gate/gate.h"
#include "tensor/gguf_writer.h"
#include "tensor/types.h"

namespace kedge::gate {
namespace {

constexpr int kMostLayers = 4096;
constexpr int kMostColumns = 1 << 20;
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
  std::string one_of(const std::string& key, const std::string& allowed) {
    const std::string found = text(key);
    if (status_.ok() && found != allowed)
      keep({ErrorCode::model_unreadable,
            file_.path() + ": key '" + key + "': found '" + found + "', allowed '" + allowed + "'"});
    return found;
  }
  const Status& status() const { return status_; }

 private:
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
  const auto cols = static_cast<size_t>((*info)->ne[0]);
  const size_t bytes = tensor::row_bytes(type, (*info)->ne[0]);
  for (size_t row = 0; row * cols < values.size(); ++row)
    tensor::row_to_f32(type, (*info)->data + row * bytes, std::span(values).subspan(row * cols, cols));
  for (const float value : values) {
    if (!std::isfinite(value))
      return Error{ErrorCode::model_unreadable,
                   file.path() + ": tensor '" + name + "': found a number that is not finite, allowed finite ones"};
  }
  return values;
}

}  // namespace

std::vector<std::byte> gate_bytes(const Gate& gate) {
  const GateInfo& info = gate.info;
  tensor::GgufWriter file;
  file.text("general.architecture", kGateArchitecture);
  file.text("general.name", info.name);
  file.number("kedge_gate.version", kGateVersion);
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
  const int hidden = info.width > 0 ? info.width : info.model.n_embd;
  for (int layer = 0; layer < info.model.n_layers; ++layer) {
    const LayerGate& own = gate.layers[static_cast<size_t>(layer)];
    if (info.width > 0) {
      file.tensor(at(layer, "w1"), own.w1, info.width, info.model.n_embd, tensor::StoredAs::q8_0);
      file.tensor(at(layer, "b1"), own.b1, 0, info.width);
    }
    file.tensor(at(layer, "w2"), own.w2, info.model.n_kv_heads, hidden, tensor::StoredAs::q8_0);
    file.tensor(at(layer, "b2"), own.b2, 0, info.model.n_kv_heads);
  }
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
  keys.one_of("general.architecture", kGateArchitecture);
  keys.number("kedge_gate.version", kGateVersion, kGateVersion);
  info.name = keys.text("general.name");
  info.model.architecture = keys.text("kedge_gate.model.architecture");
  info.model.sha256 = keys.text("kedge_gate.model.sha256");
  info.model.n_layers = keys.number("kedge_gate.model.n_layers", 1, kMostLayers);
  info.model.n_embd = keys.number("kedge_gate.model.n_embd", 1, kMostColumns);
  info.model.n_kv_heads = keys.number("kedge_gate.model.n_kv_heads", 1, kMostLayers);
  info.input = keys.one_of("kedge_gate.input", "hidden");
  info.width = keys.number("kedge_gate.width", 0, kMostColumns);
  info.window = keys.number("kedge_gate.window", 0, INT32_MAX);
  info.sinks = keys.number("kedge_gate.sinks", 0, INT32_MAX);
  info.training_data = keys.text("kedge_gate.training.data");
  info.training_data_sha256 = keys.text("kedge_gate.training.data_sha256");
  info.training_loss = keys.text("kedge_gate.training.loss");
  if (!keys.status())
    return keys.status().error();
  const int64_t hidden = info.width > 0 ? info.width : info.model.n_embd;
  Status status;
  const auto take = [&](const std::string& name, int64_t n_cols, int64_t n_rows) {
    Result<std::vector<float>> values = status.ok() ? values_of(file, name, n_cols, n_rows) : std::vector<float>();
    if (!values)
      status = values.error();
    return values ? *std::move(values) : std::vector<float>();
  };
  for (int layer = 0; layer < info.model.n_layers; ++layer) {
    LayerGate& own = gate.layers.emplace_back();
    if (info.width > 0) {
      own.w1 = take(at(layer, "w1"), info.model.n_embd, info.width);
      own.b1 = take(at(layer, "b1"), info.width, 1);
    }
    own.w2 = take(at(layer, "w2"), hidden, info.model.n_kv_heads);
    own.b2 = take(at(layer, "b2"), info.model.n_kv_heads, 1);
  }
  const std::vector<float> pairs = file.find(kThresholds) == nullptr ? std::vector<float>() : take(kThresholds, 2, 0);
  if (!status)
    return status.error();
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
  if (gate.sha256 != model.sha256)
    return differs("SHA-256 of the model", gate.sha256, model.sha256);
  return {};
}

}  // namespace kedge::gate
