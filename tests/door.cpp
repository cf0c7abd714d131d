#include "door.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <utility>

#include "gate/gate.h"
#include "kedge/policy.h"
#include "model/model.h"
#include "session/model_identity.h"
#include "support/kl.h"

namespace kedge::test {
namespace {

template <typename T>
T take(Result<T> result) {
  if (!result.ok()) {
    std::fprintf(stderr, "unexpected error: %s\n", result.error().message.c_str());
    std::abort();
  }
  return std::move(result).value();
}

}  // namespace

std::vector<gate::Feature> all_features() {
  std::vector<gate::Feature> features;
  for (int i = 0; i < gate::kFeatures; ++i)
    features.push_back(static_cast<gate::Feature>(i));
  return features;
}

void write_random_gate(const std::string& path, const std::string& gate_path, const RandomGate& what) {
  const auto compute = take(tensor::Compute::create({.n_threads = 1, .pin = false}));
  const auto net = take(model::load_model(*compute, path, {.repack = false}));
  gate::Gate gate{
      .info = {.name = "random", .model = session::gate_model(*net), .input = what.input, .ranks = what.ranks},
      .layers = {}};
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 0.3F);
  const auto draw = [&](int n) {
    std::vector<float> out(static_cast<size_t>(n));
    std::ranges::generate(out, [&] { return normal(random); });
    return out;
  };
  const gate::GateModel& of = gate.info.model;
  const int n_inputs = gate::input_size(gate.info);
  gate.info.width = n_inputs > 0 ? 8 : 0;
  for (int layer = 0; n_inputs > 0 && layer < of.n_layers; ++layer)
    gate.layers.push_back({draw(8 * n_inputs), draw(8), draw(of.n_kv_heads * 8), draw(of.n_kv_heads)});
  gate::AgeingInfo& ageing = gate.ageing.info;
  if (!what.ageing.empty())
    ageing = {.features = what.ageing, .width = 4, .window = 16};
  for (int layer = 0; !what.ageing.empty() && layer < of.n_layers; ++layer) {
    gate.ageing.layers.push_back({draw(of.n_kv_heads * 4 * ageing.n_features()), draw(of.n_kv_heads * 4),
                                  draw(of.n_kv_heads * 4), draw(of.n_kv_heads)});
  }
  must(gate::save_gate(gate, gate_path));
}

std::unique_ptr<Model> open_model(const std::string& path, int n_threads) {
  return open_model(path, n_threads, {.input = "hidden", .ageing = all_features()});
}

// So that every policy runs. The gate's file is mapped, and need not stay.
std::unique_ptr<Model> open_model(const std::string& path, int n_threads, const RandomGate& what) {
  static int n_gates = 0;
  const std::string name = "kedge-gate-" + std::to_string(::getpid()) + "-" + std::to_string(n_gates++);
  const std::string gate = (std::filesystem::temp_directory_path() / name).string();
  write_random_gate(path, gate, what);
  std::unique_ptr<Model> model = take(Model::load({.path = path, .gate = gate, .n_threads = n_threads}));
  std::filesystem::remove(gate);
  return model;
}

std::unique_ptr<Session> open_session(const Model& model, const SessionOptions& options) {
  return take(Session::create(model, options));
}

Budget budget(const std::string& text) { return take(parse_budget(text)); }

SessionOptions session_options(const Request& request) {
  SessionOptions options;
  if (!request.budget.empty())
    options.budget = budget(request.budget);
  options.policy = request.policy;
  options.expected_prompt = request.prompt;
  options.expected_generated = request.generated;
  options.hold_continuation = request.hold_continuation;
  return options;
}

void must(const Status& status) {
  if (status.ok())
    return;
  std::fprintf(stderr, "unexpected error: %s\n", status.error().message.c_str());
  std::abort();
}

std::vector<float> logits_of(const Session& session) { return {session.logits().begin(), session.logits().end()}; }

std::vector<std::vector<float>> score_all(Session& session, std::span<const Token> tokens) {
  std::vector<std::vector<float>> rows(tokens.size());
  must(session.score(tokens, [&](int64_t i, std::span<const float> row) {
    rows.at(static_cast<size_t>(i)).assign(row.begin(), row.end());
  }));
  return rows;
}

std::vector<Token> greedy(Session& session, std::span<const Token> prompt, int n) {
  must(session.prefill(prompt));
  std::vector<Token> out;
  for (int i = 0; i < n; ++i) {
    if (i > 0)
      must(session.decode(out.back()));
    out.push_back(argmax(session.logits()));
  }
  return out;
}

std::vector<std::string> evicting_scorers() {
  std::vector<std::string> out;
  for (const PolicyMethod& m : list_policies()) {
    if (m.role == "scorer" && m.name != "none")
      out.push_back(m.name);
  }
  return out;
}

}  // namespace kedge::test
