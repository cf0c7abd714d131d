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

// Takes numbers from the front; what is not there stays as it was.
class Numbers {
 public:
  explicit Numbers(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <typename T>
  void take(std::span<T> to) {
    const size_t n = to.size_bytes();
    wanted_ += n;
    if (wanted_ <= bytes_.size() && n > 0)
      std::memcpy(to.data(), bytes_.data() + wanted_ - n, n);
  }
  // Empty = exactly these bytes were there.
  std::string end() const {
    if (wanted_ == bytes_.size())
      return "";
    return "found " + std::to_string(bytes_.size()) + " bytes, allowed " + std::to_string(wanted_);
  }

 private:
  std::span<const std::byte> bytes_;
  size_t wanted_ = 0;
};

bool is_count(int64_t n, int64_t most) { return n >= 0 && n <= most; }

bool all_finite(const std::vector<double>& values) {
  return std::ranges::all_of(values, [](double x) { return std::isfinite(x); });
}

}  // namespace

std::vector<std::byte> history_to_bytes(const HistoryState& state, const std::vector<LayerNote>& notes) {
  std::vector<std::byte> out;
  put(out, std::span<const int64_t>(state.n_added));
  for (const eviction::QueryMoments& m : state.moments) {
    put(out, std::span<const int64_t>(&m.n_queries, 1));
    put(out, std::span<const double>(m.sum));
    put(out, std::span<const double>(m.outer));
    put(out, std::span<const double>(m.length));
  }
  for (const LayerNote& note : notes) {
    const auto n_measured = static_cast<int64_t>(note.measured.size());
    put(out, std::span<const int64_t>(&note.n_tokens, 1));
    put(out, std::span<const double>(&note.demand, 1));
    put(out, std::span<const int64_t>(&n_measured, 1));
    put(out, std::span<const double>(note.measured));
  }
  return out;
}

std::string history_from_bytes(std::span<const std::byte> bytes, const HistoryInto& into) {
  Numbers numbers(bytes);
  const auto bad_count = [](const char* what, int64_t found, int64_t most) {
    return std::string(what) + ": found " + std::to_string(found) + ", allowed 0.." + std::to_string(most);
  };
  numbers.take(std::span(into.state.n_added));
  for (eviction::QueryMoments& m : into.state.moments) {
    numbers.take(std::span(&m.n_queries, 1));
    for (std::vector<double>* values : {&m.sum, &m.outer, &m.length})
      numbers.take(std::span(*values));
  }
  for (LayerNote& note : into.notes) {
    int64_t n_measured = 0;
    numbers.take(std::span(&note.n_tokens, 1));
    numbers.take(std::span(&note.demand, 1));
    numbers.take(std::span(&n_measured, 1));
    const bool was_scored = note.n_tokens != 0;
    if (n_measured != into.n_kv_heads && (was_scored || n_measured != 0))
      return "measured heads: found " + std::to_string(n_measured) + ", allowed " + std::to_string(into.n_kv_heads);
    note.measured.resize(static_cast<size_t>(n_measured));
    numbers.take(std::span(note.measured));
    if (!is_count(note.n_tokens, into.n_tokens))
      return bad_count("tokens of a layer's note", note.n_tokens, into.n_tokens);
    if (!std::isfinite(note.demand) || !all_finite(note.measured))
      return "found a value that is not finite";
  }
  if (const std::string wrong = numbers.end(); !wrong.empty())
    return wrong;
  for (const int64_t n : into.state.n_added) {
    if (!is_count(n, into.n_tokens))
      return bad_count("queries added", n, into.n_tokens);
  }
  for (const eviction::QueryMoments& m : into.state.moments) {
    if (!is_count(m.n_queries, into.n_tokens))
      return bad_count("queries of moments", m.n_queries, into.n_tokens);
    if (!all_finite(m.sum) || !all_finite(m.outer) || !all_finite(m.length))
      return "found a value that is not finite";
  }
  return "";
}

}  // namespace kedge::session
