// Opening models and sessions in tests: what must succeed does, or the test program stops with the error's words.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gate/ageing.h"
#include "kedge/budget.h"
#include "kedge/model.h"
#include "kedge/session.h"

namespace kedge::test {

// A gate of random weights for the model at `path`, 8 hidden units wide: what it sees (gate::kInputs), and the features
// of its ageing stage; which rows it ranks (gate::kRanks).
struct RandomGate {
  std::string input = "hidden";
  std::vector<gate::Feature> ageing = {};
  std::string ranks = "head";
};
void write_random_gate(const std::string& path, const std::string& gate_path, const RandomGate& what = {});
std::vector<gate::Feature> all_features();

// With a gate of random weights that has both stages and all features.
std::unique_ptr<Model> open_model(const std::string& path, int n_threads = 2);
std::unique_ptr<Model> open_model(const std::string& path, int n_threads, const RandomGate& what);
std::unique_ptr<Session> open_session(const Model& model, const SessionOptions& options);
Budget budget(const std::string& text);

// Options of a session with a budget ("" = unlimited) and a policy, for a request of so many tokens.
struct Request {
  std::string budget = "";
  std::string policy = "";
  int64_t prompt = 0;
  int64_t generated = -1;  // not known
  bool hold_continuation = false;
};
SessionOptions session_options(const Request& request);

void must(const Status& status);  // stops with the error's words
std::vector<float> logits_of(const Session& session);
std::vector<std::vector<float>> score_all(Session& session, std::span<const Token> tokens);

// Prefills and takes n greedy tokens with decode(); the last one is not appended.
std::vector<Token> greedy(Session& session, std::span<const Token> prompt, int n);

// Names of the scorers of the registry that evict.
std::vector<std::string> evicting_scorers();

// Sets the type of K and of V rows, whether or not the options name them separately.
template <typename Options>
constexpr bool has_separate_cache_types() {
  return requires(Options options) { options.cache_type_k; };
}
template <typename Options>
void set_cache_types(Options& options, const std::string& k, const std::string& v) {
  if constexpr (has_separate_cache_types<Options>()) {
    options.cache_type_k = k;
    options.cache_type_v = v;
  } else {
    options.cache_type = k;
  }
}

}  // namespace kedge::test
