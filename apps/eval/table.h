// The result of a run for people: one line per (task, policy, budget, length).
#pragma once

#include <span>
#include <string>

#include "eval/groups.h"

namespace kedge::eval {

// Groups without a depth; pooled over lengths only where there are several. Columns that no group has are left out.
// noise_floor: of metrics.json, stands under every KLD; may be null.
std::string table_text(std::span<const Group> groups, const Json& noise_floor);

}  // namespace kedge::eval
