// The other program of `kedge train-gate`: kedge-train-lm, which lies beside this one where it was built.
#pragma once

#include <span>
#include <string>

#include "kedge/error.h"

namespace kedge::train {

// Error failed: it is not there, and how to get it.
Status find_lm_program();

// This process becomes that program, with the same arguments. Returns only what went wrong.
Error become_lm_program(std::span<const std::string> args);

}  // namespace kedge::train
