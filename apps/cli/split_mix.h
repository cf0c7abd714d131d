// SplitMix64 (Steele, Lea and Flood 2014): draws that are the same on every machine.
#pragma once

#include <cstdint>

namespace kedge::cli {

// Advances the state and returns the next 64 bits. Any state is a good seed.
inline uint64_t split_mix(uint64_t& state) {
  state += 0x9E3779B97F4A7C15U;
  uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

}  // namespace kedge::cli
