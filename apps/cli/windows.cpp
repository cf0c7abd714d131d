#include "windows.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <string>

#include "split_mix.h"

namespace kedge::cli {
namespace {

Error usage(std::string message) { return {.code = ErrorCode::usage, .message = std::move(message)}; }

// High 64 bits of a * b, from 32-bit halves.
uint64_t multiply_high(uint64_t a, uint64_t b) {
  const uint64_t a_low = a & 0xFFFFFFFFU, a_high = a >> 32, b_low = b & 0xFFFFFFFFU, b_high = b >> 32;
  const uint64_t middle = a_high * b_low + ((a_low * b_low) >> 32);
  const uint64_t other = a_low * b_high + (middle & 0xFFFFFFFFU);
  return a_high * b_high + (middle >> 32) + (other >> 32);
}

}  // namespace

Result<std::vector<int64_t>> sample_offsets(const WindowRequest& request) {
  const int64_t n_places = request.n_tokens - request.length + 1;
  if (n_places < 1 || request.samples > n_places) {
    return usage("the text has " + std::to_string(request.n_tokens) + " tokens: " +
                 std::to_string(n_places < 0 ? 0 : n_places) + " windows of " + std::to_string(request.length) +
                 " tokens (--context and --continue), --samples asks for " + std::to_string(request.samples));
  }
  std::vector<int64_t> offsets;
  std::set<int64_t> seen;
  uint64_t state = request.seed;
  while (static_cast<int>(offsets.size()) < request.samples) {
    const auto offset = static_cast<int64_t>(multiply_high(split_mix(state), static_cast<uint64_t>(n_places)));
    if (seen.insert(offset).second)
      offsets.push_back(offset);
  }
  return offsets;
}

Result<std::vector<int64_t>> parse_offsets(std::string_view list) {
  std::vector<int64_t> offsets;
  const char* at = list.data();
  const char* const end = at + list.size();
  for (;;) {
    int64_t offset = 0;
    const auto [stop, error] = std::from_chars(at, end, offset);
    if (error != std::errc() || offset < 0 || (stop != end && *stop != ',')) {
      return usage("--offsets: '" + std::string(list) + "' is not a list of token offsets like 0,1000,2000");
    }
    offsets.push_back(offset);
    if (stop == end)
      return offsets;
    at = stop + 1;
  }
}

Result<std::vector<int64_t>> fit_offsets(std::vector<int64_t> offsets, int64_t n_tokens, int64_t length) {
  for (int64_t& offset : offsets) {
    if (offset >= n_tokens || length > n_tokens) {
      return usage("--offsets: a window of " + std::to_string(length) + " tokens at " + std::to_string(offset) +
                   " does not fit the text of " + std::to_string(n_tokens) + " tokens");
    }
    offset = std::min(offset, n_tokens - length);
  }
  return offsets;
}

}  // namespace kedge::cli
