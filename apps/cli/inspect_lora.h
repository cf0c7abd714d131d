#pragma once

#include <string>

#include "kedge/error.h"

namespace kedge::cli {

// By its general.type, "adapter"; false for what is no GGUF file.
bool is_lora_file(const std::string& path);

// What an adapter's file says of itself, as text or as one JSON object. Errors: those of tensor::read_lora().
Result<std::string> inspect_lora(const std::string& path, bool as_json);

}  // namespace kedge::cli
