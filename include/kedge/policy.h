// The registry of eviction methods, for help, listings and sweeps.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kedge/error.h"

namespace kedge {

struct PolicyOption {
  std::string name;
  std::string kind;      // integer | real | rows | choice | flag | text
  std::string fallback;  // default, as the user would write it
  std::string range;     // "1..1024", "full|nonprotected|window"
  std::string help;
};

// What a session must record or compute for a method, with its default options.
struct PolicyNeeds {
  int window_queries = 0;      // newest query rows of each head, and the heads' outputs for them
  bool values = false;         // reads K or V rows
  bool attention_sum = false;  // the attention that each row has had: 4 bytes a row, counted by the budget
  bool echo = false;           // what the text's own queries look at: 8 bytes a row, counted by the budget
  bool query_moments = false;  // mean and covariance of the queries
  bool second_pass = false;    // reads the prompt twice; 4 bytes a row, counted by the budget
  bool gate = false;           // a learned gate of the model (ModelOptions::gate): 4 bytes a row, counted by the budget
  bool output_weights = false;  // the output projection
  bool tokens = false;          // ids and kinds of the tokens
  bool running_anchor = false;  // a running mean of each head's outputs
};
std::string needs_text(const PolicyNeeds& needs);  // for people: "32 queries, K and V rows"; "nothing"

// Scores of the six rows of every scorer's worked example (docs/policies/README.md), nothing of which is protected.
struct PolicyExample {
  std::string policy;        // "snapkv:window=1,pool=1"
  std::vector<float> score;  // [6]; empty: no example
  std::vector<int> kept;     // [6] rows, the one that stays longest first
};

struct PolicyMethod {
  std::string role;  // scorer | allocator | schedule
  std::string name, summary, source;
  std::vector<PolicyOption> options;
  std::string defaults;  // scorers: the policy text that the bare name resolves to
  std::vector<std::string> aliases;
  std::string cost;  // work of one eviction of a kv head with n rows
  PolicyNeeds needs;
  PolicyExample example;  // scorers
  std::string layers;     // allocators: how layers share a budget: equal | weighted | shared
  // schedules: {"after the prompt", "yes"}, {"between its chunks", "yes"}, {"while decoding", "every 64 tokens"}
  std::vector<std::pair<std::string, std::string>> properties;
};

std::vector<PolicyMethod> list_policies();
// The text with every option spelled out; its newest query rows. With what the model's gate means for it. Error usage.
Result<std::string> resolve_policy(std::string_view text, const class Model* model = nullptr);
Result<std::string> resolve_gate_mode(std::string_view text);  // SessionOptions::gate_mode; empty: "budget"
Result<int> observed_rows(std::string_view policy, const Model* model = nullptr);

// Recorded from the first token on (docs/policies.md): for the session's policy, and here for those of its forks.
struct Histories {
  bool attention_sum = false;   // the attention that each row has had: a column in the store
  bool echo = false;            // what a sample of all queries looks at, and their echo: two columns
  bool query_moments = false;   // mean and covariance of the queries
  bool reconstruction = false;  // what a repetition of the text looks at: the prompt is read twice
  bool gate = false;            // what the model's gate says of each row: a column
};
Result<Histories> observed_histories(std::string_view policy, const Model* model = nullptr);  // error usage

}  // namespace kedge
