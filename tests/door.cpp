#include "door.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "kedge/policy.h"
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

std::unique_ptr<Model> open_model(const std::string& path, int n_threads) {
  return take(Model::load({.path = path, .n_threads = n_threads}));
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
