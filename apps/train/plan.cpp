#include "train/plan.h"

#include <algorithm>

namespace kedge::train {
namespace {

constexpr size_t kHeldOutEvery = 10;

std::vector<Window> cut(std::span<const DocumentSize> documents, std::span<const int64_t> lengths) {
  std::vector<Window> windows;
  for (size_t d = 0; d < documents.size(); ++d) {
    int64_t begin = 0;
    for (size_t i = 0; begin + lengths[i % lengths.size()] <= documents[d].n_tokens; ++i) {
      const int64_t n = lengths[i % lengths.size()];
      windows.push_back({.document = d, .begin = begin, .n = n, .held_out = documents[d].held_out});
      begin += n;
    }
  }
  return windows;
}

}  // namespace

std::vector<Window> plan_windows(std::span<const DocumentSize> documents, const PlanOptions& options) {
  const std::vector<Window> all = cut(documents, options.lengths);
  int64_t n_all = 0;
  for (const Window& window : all)
    n_all += window.n;
  // Window i is taken when the tokens before it, scaled to what is wanted, begin a new window's worth.
  std::vector<Window> taken;
  const double share =
      n_all == 0 ? 0 : std::min(1.0, static_cast<double>(options.n_tokens) / static_cast<double>(n_all));
  double owed = 0;
  int64_t n_taken = 0;
  for (const Window& window : all) {
    owed += share * static_cast<double>(window.n);
    if (owed + 1e-6 < static_cast<double>(window.n) || n_taken + window.n > options.n_tokens)
      continue;
    owed -= static_cast<double>(window.n);
    n_taken += window.n;
    taken.push_back(window);
  }
  const bool is_named = std::ranges::any_of(documents, [](const DocumentSize& d) { return d.held_out; });
  for (size_t i = kHeldOutEvery - 1; !is_named && i < taken.size(); i += kHeldOutEvery)
    taken[i].held_out = true;
  return taken;
}

Status both_kinds(std::span<const Window> windows) {
  const auto n_held_out = std::ranges::count_if(windows, [](const Window& w) { return w.held_out; });
  if (n_held_out > 0 && n_held_out < static_cast<int64_t>(windows.size()))
    return {};
  return Error{ErrorCode::usage, "the documents give " + std::to_string(windows.size()) + " windows, " +
                                     std::to_string(n_held_out) +
                                     " of them held out; needed is at least one of each kind"};
}

}  // namespace kedge::train
