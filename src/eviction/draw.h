// Random numbers of scorers: a hash of what is drawn for, so that they are the same for any number of threads.
#pragma once

#include <cstdint>

#include "eviction/policy.h"

namespace kedge::eviction {

// splitmix64: every bit of the input changes half the bits of the output.
inline uint64_t mixed(uint64_t x) {
  x += 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

// Uniform in [0, 1), for a seed, a head and `what` is drawn.
inline float draw(const HeadInput& in, uint64_t what) {
  const uint64_t head =
      mixed(mixed(in.seed) ^ (static_cast<uint64_t>(in.layer) << 32 | static_cast<uint32_t>(in.head)));
  return static_cast<float>(mixed(head ^ what) >> 40) * 0x1p-24F;
}

}  // namespace kedge::eviction
