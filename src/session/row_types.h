// Names of the types of stored rows.
#pragma once

#include <string>

#include "kedge/error.h"
#include "kernels/kv_view.h"

namespace kedge::session {

// "f16", "bf16", "q8_0" or "q8", "q4_0" or "q4", for keys and for values. Error usage: the name, and those allowed.
Result<RowTypes> parse_row_types(const std::string& k, const std::string& v);

}  // namespace kedge::session
