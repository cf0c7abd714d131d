#include "session/history_bytes.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace kedge::session {
namespace {

constexpr uint16_t kF16Exponent = 0x7C00;

class Out {
 public:
  template <typename T>
  void put(const std::vector<T>& values) {
    const auto bytes = std::as_bytes(std::span(values));
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  void put(int64_t value) { put(std::vector<int64_t>{value}); }
  template <typename T>
  void put_counted(const std::vector<T>& values) {
    put(static_cast<int64_t>(values.size()));
    put(values);
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

// Takes numbers from the front; what is not there stays as it was. The first thing that is wrong is remembered.
class In {
 public:
  In(std::span<const std::byte> bytes, int64_t n_tokens) : bytes_(bytes), n_tokens_(n_tokens) {}

  template <typename T>
  void take(std::vector<T>& to) {
    const size_t n = to.size() * sizeof(T);
    wanted_ += n;
    if (wanted_ <= bytes_.size() && n > 0)
      std::memcpy(to.data(), bytes_.data() + wanted_ - n, n);
  }
  template <typename T>
  void take(T& to) {
    std::vector<T> one = {to};
    take(one);
    to = one.front();
  }
  // As many as the bytes say: none, or `n`.
  template <typename T>
  void take_counted(const char* what, std::vector<T>& to, int64_t n) {
    int64_t found = 0;
    take(found);
    if (found != 0 && found != n)
      return refuse(std::string(what) + ": found " + std::to_string(found) + " values, allowed 0 or " +
                    std::to_string(n));
    to.assign(static_cast<size_t>(found), T{});
    take(to);
  }
  // Tokens of a sequence of this length.
  void check_tokens(const char* what, int64_t found, int64_t least = 0) {
    if (found < least || found > n_tokens_)
      refuse(std::string(what) + ": found " + std::to_string(found) + ", allowed " + std::to_string(least) + ".." +
             std::to_string(n_tokens_));
  }
  template <typename T>
  void check_finite(const char* what, const std::vector<T>& values) {
    if (!std::ranges::all_of(values, [](T x) { return std::isfinite(x); }))
      refuse(std::string(what) + ": found a value that is not finite");
  }
  void refuse(const std::string& why) {
    if (wrong_.empty())
      wrong_ = why;
  }
  std::string end() {
    if (wanted_ != bytes_.size())
      refuse("found " + std::to_string(bytes_.size()) + " bytes, allowed " + std::to_string(wanted_));
    return wrong_;
  }

 private:
  std::span<const std::byte> bytes_;
  int64_t n_tokens_;
  size_t wanted_ = 0;
  std::string wrong_;
};

void take_moments(In& in, eviction::QueryMoments& m) {
  in.take(m.n_queries);
  in.check_tokens("queries of moments", m.n_queries);
  for (std::vector<double>* values : {&m.sum, &m.outer, &m.length}) {
    in.take(*values);
    in.check_finite("moments", *values);
  }
}

void take_note(In& in, int64_t n_kv_heads, LayerNote& note) {
  in.take(note.n_tokens);
  in.take(note.demand);
  in.take(note.share);
  in.take_counted("what was measured of heads", note.measured, n_kv_heads);
  in.check_tokens("tokens of a layer's note", note.n_tokens);
  in.check_finite("demand and share", std::vector<double>{note.demand, note.share});
  if (note.share < 0)
    in.refuse("share of a layer: found " + std::to_string(note.share) + ", allowed 0 or more");
  in.check_finite("what was measured of heads", note.measured);
  if (note.n_tokens > 0 && note.measured.empty())
    in.refuse("what was measured of heads: found 0 values, allowed " + std::to_string(n_kv_heads));
}

void take_anchor(In& in, attention::RunningAnchor::State& anchor) {
  in.take(anchor.values);
  in.take(anchor.scale);
  in.take(anchor.position);
  in.check_finite("scale of the running anchor", anchor.scale);
  if (std::ranges::any_of(anchor.values, [](uint16_t x) { return (x & kF16Exponent) == kF16Exponent; }))
    in.refuse("running anchor: found a value that is not finite");
  for (const int32_t position : anchor.position)
    in.check_tokens("position of the running anchor", position, -1);
}

}  // namespace

std::vector<std::byte> history_to_bytes(const SavedHistory& saved) {
  Out out;
  out.put(saved.observed.n_added);
  for (const eviction::QueryMoments& m : saved.observed.moments) {
    out.put(m.n_queries);
    out.put(m.sum);
    out.put(m.outer);
    out.put(m.length);
  }
  out.put(saved.observed.lead_end);
  out.put(saved.observed.lead);
  for (const LayerNote& note : saved.layer_notes) {
    out.put(note.n_tokens);
    out.put(std::vector<double>{note.demand, note.share});
    out.put_counted(note.measured);
  }
  out.put_counted(saved.scored_at);
  out.put_counted(saved.difficulty);
  out.put_counted(saved.share);
  out.put(saved.anchor.values);
  out.put(saved.anchor.scale);
  out.put(saved.anchor.position);
  return out.take();
}

std::string history_from_bytes(std::span<const std::byte> bytes, const HistoryLimits& limits, SavedHistory& saved) {
  In in(bytes, limits.n_tokens);
  in.take(saved.observed.n_added);
  for (const int64_t n : saved.observed.n_added)
    in.check_tokens("queries added", n);
  for (eviction::QueryMoments& m : saved.observed.moments)
    take_moments(in, m);
  in.take(saved.observed.lead_end);
  for (const int64_t n : saved.observed.lead_end)
    in.check_tokens("end of the lead of echoes", n, -1);
  in.take(saved.observed.lead);
  in.check_finite("lead of echoes", saved.observed.lead);
  for (LayerNote& note : saved.layer_notes)
    take_note(in, limits.n_kv_heads, note);
  in.take_counted("scored layers", saved.scored_at, limits.n_layers);
  in.take_counted("difficulty", saved.difficulty, limits.n_layers);
  in.take_counted("share", saved.share, limits.n_layers);
  for (const int64_t n : saved.scored_at)
    in.check_tokens("tokens when a layer was scored", n);
  in.check_finite("difficulty", saved.difficulty);
  in.check_finite("share", saved.share);
  take_anchor(in, saved.anchor);
  return in.end();
}

}  // namespace kedge::session
