#include "eval/random.h"

#include "cli/split_mix.h"

namespace kedge::eval {

Random::Random(uint64_t seed, std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325U;
  for (const char c : name)
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
  state_ = seed ^ hash;
}

uint64_t Random::next() { return cli::split_mix(state_); }

int64_t Random::below(int64_t n) { return static_cast<int64_t>(((next() >> 32) * static_cast<uint64_t>(n)) >> 32); }

int64_t Random::between(int64_t first, int64_t last) { return first + below(last - first + 1); }

}  // namespace kedge::eval
