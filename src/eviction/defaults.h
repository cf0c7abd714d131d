// What is meant where a policy, or a part of one, is not named.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace kedge::eviction {

// How often most scorers evict while decoding (schedules/every.cpp has the figures).
inline constexpr const char* kEveryTurn = "every:n=64,share=0.06";

// What stands in for a scorer's defaults where the gate that it asks ranks the rows of all heads
// (gate::GateInfo::ranks). Empty: nothing.
struct ModelWideDefaults {
  std::string allocator = {};
  std::vector<std::pair<std::string, std::string>> options = {};  // of the scorer
};

// "none" without a budget; with one "echo", or "gate" where one is loaded that ranks the rows of all heads.
const char* default_scorer(bool limited, bool gate_ranks_model);

}  // namespace kedge::eviction
