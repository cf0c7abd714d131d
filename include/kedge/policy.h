// The registry of eviction methods, for help, listings and sweeps.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kedge/error.h"

namespace kedge {

struct PolicyOption {
  std::string name;
  std::string kind;      // integer | real | rows | choice | flag
  std::string fallback;  // default, as the user would write it
  std::string range;     // "1..1024", "full|nonprotected|window"
  std::string help;
};

struct PolicyMethod {
  std::string role;  // scorer | allocator | schedule
  std::string name;
  std::string summary;
  std::string source;
  std::vector<PolicyOption> options;
  std::string defaults;  // scorers: the policy text that the bare name resolves to
};

std::vector<PolicyMethod> list_policies();

// Checks a policy text without a model; returns the resolved text with every option spelled out. Error usage, with the
// nearest name.
Result<std::string> resolve_policy(std::string_view text);

// Newest query rows that the policy's scorer looks at. Error usage.
Result<int> observed_rows(std::string_view policy);

// What a policy reads that is recorded from the first token on, and not only at an eviction. Each costs work on every
// token and memory (docs/policies.md): a session records what its own policy reads, and what SessionOptions::histories
// names for its forks.
struct Histories {
  bool attention_sum = false;   // the attention that each row has had: a column in the store
  bool query_moments = false;   // mean and covariance of the queries
  bool reconstruction = false;  // what a repetition of the text looks at: the prompt is read twice
};
// Error usage.
Result<Histories> observed_histories(std::string_view policy);

}  // namespace kedge
