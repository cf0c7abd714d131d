#include "session/history_bytes.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace kedge::session {
namespace {

template <typename T>
void put(std::vector<std::byte>& out, std::span<const T> values) {
  const auto bytes = std::as_bytes(values);
  out.insert(out.end(), bytes.begin(), bytes.end());
}

size_t size_of(const HistoryState& state) {
  size_t n = state.n_added.size();
  for (const eviction::QueryMoments& m : state.moments)
    n += 1 + m.sum.size() + m.outer.size() + m.length.size();
  return n * 8;
}

bool is_count(int64_t n, int64_t most) { return n >= 0 && n <= most; }

bool all_finite(const std::vector<double>& values) {
  return std::ranges::all_of(values, [](double x) { return std::isfinite(x); });
}

}  // namespace

std::vector<std::byte> history_to_bytes(const HistoryState& state) {
  std::vector<std::byte> out;
  out.reserve(size_of(state));
  put(out, std::span<const int64_t>(state.n_added));
  for (const eviction::QueryMoments& m : state.moments) {
    put(out, std::span<const int64_t>(&m.n_queries, 1));
    put(out, std::span<const double>(m.sum));
    put(out, std::span<const double>(m.outer));
    put(out, std::span<const double>(m.length));
  }
  return out;
}

std::string history_from_bytes(std::span<const std::byte> bytes, int64_t n_tokens, HistoryState& state) {
  if (bytes.size() != size_of(state))
    return "found " + std::to_string(bytes.size()) + " bytes, allowed " + std::to_string(size_of(state));
  size_t at = 0;
  const auto take = [&](void* to, size_t n) {
    if (n > 0)
      std::memcpy(to, bytes.data() + at, n);
    at += n;
  };
  take(state.n_added.data(), state.n_added.size() * 8);
  for (const int64_t n : state.n_added) {
    if (!is_count(n, n_tokens))
      return "queries added: found " + std::to_string(n) + ", allowed 0.." + std::to_string(n_tokens);
  }
  for (eviction::QueryMoments& m : state.moments) {
    take(&m.n_queries, 8);
    if (!is_count(m.n_queries, n_tokens))
      return "queries of moments: found " + std::to_string(m.n_queries) + ", allowed 0.." + std::to_string(n_tokens);
    for (std::vector<double>* values : {&m.sum, &m.outer, &m.length}) {
      take(values->data(), values->size() * 8);
      if (!all_finite(*values))
        return "found a value that is not finite";
    }
  }
  return "";
}

}  // namespace kedge::session
