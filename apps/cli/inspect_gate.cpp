// kedge inspect FILE, where FILE is a discard gate.
#include "inspect_gate.h"

#include <nlohmann/json.hpp>

#include "engine.h"
#include "gate/gate.h"
#include "kedge/budget.h"
#include "tensor/gguf_file.h"

namespace kedge::cli {
namespace {

std::vector<std::string> feature_names(const gate::AgeingInfo& ageing) {
  std::vector<std::string> names;
  for (const gate::Feature feature : ageing.features)
    names.emplace_back(gate::feature_name(feature));
  return names;
}

std::string network_text(int width) {
  return width > 0 ? std::to_string(width) + " hidden units" : std::string("linear");
}

std::string append_text(const gate::GateInfo& info) {
  if (input_size(info) == 0)
    return "nothing is said of a row when it is written";
  return network_text(info.width) + " a layer over the " + (info.input == "hidden" ? "hidden" : "key and value") +
         " row, " + grouped(n_products(info)) + " products a token";
}

std::string ageing_text(const gate::AgeingInfo& info) {
  std::string features = gate::feature_names(info.features);
  for (size_t at = 0; (at = features.find(',', at)) != std::string::npos; at += 2)
    features.insert(at + 1, " ");
  return network_text(info.width) + " a head over " + features + " of the last " + std::to_string(info.window) +
         " queries, " + grouped(n_products(info)) + " products a row at an eviction";
}

std::string json_of(const gate::Gate& gate, const std::string& path, int64_t file_bytes) {
  const gate::GateInfo& info = gate.info;
  nlohmann::ordered_json thresholds = nlohmann::ordered_json::array();
  for (const gate::KeepThreshold& one : gate.thresholds)
    thresholds.push_back({{"keep", one.keep}, {"threshold", one.threshold}});
  const nlohmann::ordered_json json = {
      {"path", path},
      {"file_bytes", file_bytes},
      {"name", info.name},
      {"version", gate_version(gate)},
      {"model",
       {{"architecture", info.model.architecture},
        {"sha256", info.model.sha256},
        {"n_layers", info.model.n_layers},
        {"n_embd", info.model.n_embd},
        {"n_kv_heads", info.model.n_kv_heads},
        {"head_dim", info.model.head_dim}}},
      {"input", info.input},
      {"width", info.width},
      {"products_per_token", n_products(info)},
      {"ageing",
       {{"features", feature_names(gate.ageing.info)},
        {"width", gate.ageing.info.width},
        {"window", gate.ageing.info.window},
        {"products_per_row", n_products(gate.ageing.info)}}},
      {"window", info.window},
      {"sinks", info.sinks},
      {"ranks", info.ranks},
      {"training",
       {{"data", info.training_data}, {"data_sha256", info.training_data_sha256}, {"loss", info.training_loss}}},
      {"thresholds", thresholds},
  };
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string text_of(const gate::Gate& gate, const std::string& path, int64_t file_bytes) {
  const gate::GateInfo& info = gate.info;
  std::string text = "discard gate " + path + "\n";
  text += report_row("size", format_bytes(file_bytes));
  text += report_row("name", info.name);
  text += report_row("for the model", info.model.architecture + ", " + std::to_string(info.model.n_layers) +
                                          " layers, " + std::to_string(info.model.n_embd) + " wide, " +
                                          std::to_string(info.model.n_kv_heads) + " kv heads, sha256 " +
                                          info.model.sha256.substr(0, 16));
  text += report_row("append stage", append_text(info));
  if (!gate.ageing.info.features.empty())
    text += report_row("ageing stage", ageing_text(gate.ageing.info));
  text += report_row("ranks", info.ranks == "model" ? "rows of all layers and heads together" : "rows of a head");
  text += report_row("trained with", std::to_string(info.window) + " recent and " + std::to_string(info.sinks) +
                                         " first rows protected");
  text += report_row("on", info.training_data);
  text += report_row("text's sha256", info.training_data_sha256);
  text += report_row("by", info.training_loss);
  for (const gate::KeepThreshold& one : gate.thresholds)
    text += report_row("keep " + format_percent(static_cast<double>(one.keep)),
                       "probability above " + format_real(static_cast<double>(one.threshold), 3));
  text.pop_back();
  return text;
}

}  // namespace

bool is_gate_file(const std::string& path) {
  const Result<std::unique_ptr<tensor::GgufFile>> file = tensor::GgufFile::open(path);
  if (!file)
    return false;
  const Result<std::string> architecture = (*file)->get_string_or("general.architecture", "");
  return architecture.ok() && *architecture == gate::kGateArchitecture;
}

Result<std::string> inspect_gate(const std::string& path, bool as_json) {
  const Result<std::unique_ptr<tensor::GgufFile>> file = tensor::GgufFile::open(path);
  if (!file)
    return file.error();
  const Result<gate::Gate> gate = gate::read_gate(**file);
  if (!gate)
    return gate.error();
  const int64_t n_bytes = (*file)->file_bytes();
  return as_json ? json_of(*gate, path, n_bytes) : text_of(*gate, path, n_bytes);
}

}  // namespace kedge::cli
