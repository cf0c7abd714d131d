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

void write_random_gate(const std::string& path, const std::string& gate_path) {
  const auto compute = take(tensor::Compute::create({.n_threads = 1, .pin = false}));
  const auto net = take(model::load_model(*compute, path, {.repack = false}));
  gate::Gate gate{.info = {.name = "random", .model = session::gate_model(*net), .width = 8}, .layers = {}};
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 0.3F);
  const auto draw = [&](int n) {
    std::vector<float> out(static_cast<size_t>(n));
    std::ranges::generate(out, [&] { return normal(random); });
    return out;
  };
  const gate::GateModel& of = gate.info.model;
  for (int layer = 0; layer < of.n_layers; ++layer)
    gate.layers.push_back({draw(8 * of.n_embd), draw(8), draw(of.n_kv_heads * 8), draw(of.n_kv_heads)});
  must(gate::save_gate(gate, gate_path));
}

// With a gate of random weights, so that every policy runs. Its file is mapped, and need not stay.
std::unique_ptr<Model> open_model(const std::string& path, int n_threads) {
  static int n_gates = 0;
  const std::string name = "kedge-gate-" + std::to_string(::getpid()) + "-" + std::to_string(n_gates++);
  const std::string gate = (std::filesystem::temp_directory_path() / name).string();
  write_random_gate(path, gate);
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
