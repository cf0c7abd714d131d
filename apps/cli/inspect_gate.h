#pragma once

#include <string>

#include "kedge/error.h"

namespace kedge::cli {

// By its general.architecture; false for what is no GGUF file.
bool is_gate_file(const std::string& path);

// What a gate's file says of itself, as text or as one JSON object. Errors: those of gate::read_gate().
Result<std::string> inspect_gate(const std::string& path, bool as_json);

}  // namespace kedge::cli
