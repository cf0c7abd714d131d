// The real model and the real text that the slower tests read. Where they are is told by the environment.
#pragma once

#include <cstdint>
#include <string>

namespace kedge::test {

std::string real_model_path();  // $KEDGE_MODEL; empty: not set or not there
std::string real_text();        // $KEDGE_TEXT or Debian's developers-reference, unpacked; empty: neither is there

// The real model with every weight dequantised to f32, made once with libllama into $KEDGE_DEPS (default
// ~/.cache/kedge). Weights that are quantised re-quantise the activations, which hides what attention does: parity is
// judged on f32. Aborts when it cannot be made. Two processes may start together: each writes its own file and renames
// it.
std::string f32_model_path();

}  // namespace kedge::test
