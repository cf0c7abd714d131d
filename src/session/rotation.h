// The model's rotary positions as scorers see them: one frequency per pair of dimensions.
#pragma once

#include "eviction/policy.h"
#include "tensor/compute.h"

namespace kedge::session {

// With linear and YaRN scaling (arXiv 2309.00071) and frequency factors applied, as ggml's RoPE applies them.
eviction::Rotation rotation_of(const tensor::RopeParams& rope);

}  // namespace kedge::session
