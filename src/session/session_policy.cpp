// Which policy a session's options mean, on an engine with or without a gate.
#include "eviction/ageing.h"
#include "session/timeline.h"

namespace kedge::session {

eviction::PolicyOverrides gate_overrides(const Engine& engine) {
  eviction::PolicyOverrides out{.gate_ranks_model = engine.gate_ranks_model};
  if (engine.ageing != nullptr)
    out.gate = eviction::ageing_needs(engine.ageing->info);
  return out;
}

Result<eviction::Policy> session_policy(const Engine& engine, const SessionOptions& options) {
  const bool limited = options.budget.kind != Budget::Kind::unlimited;
  eviction::PolicyOverrides overrides = gate_overrides(engine);
  overrides.sinks = options.sinks;
  overrides.recent = options.recent;
  const std::string name =
      options.policy.empty() ? eviction::default_scorer(limited, engine.gate_ranks_model) : options.policy;
  return eviction::parse_policy(name, overrides);
}

}  // namespace kedge::session
