// The heads of a layer compete: one top-k over all their unprotected rows (Ada-KV, arXiv 2407.11550; AnDPro, OpenReview
// Tdl89SZItB, section on flattened heads). Budgets per head come out ragged. `floor` is the share of an even split that
// each head is sure of (Ada-KV uses .2, AnDPro 0).
#include <algorithm>
#include <numeric>

#include "eviction/compete.h"
#include "eviction/options.h"
#include "eviction/policy.h"

namespace kedge::eviction {
namespace {

class Pooled final : public Allocator {
 public:
  explicit Pooled(double floor) : floor_(floor) {}

  std::vector<int32_t> allocate(const LayerScores& layer, int64_t total) const override {
    const size_t n_heads = layer.score.size();
    if (n_heads == 0)
      return {};
    std::vector<int32_t> minimum(n_heads);  // protected rows, at least 1
    std::vector<int32_t> sure(n_heads);     // that and the floor
    const double share = floor_ * static_cast<double>(std::max<int64_t>(total, 0)) / static_cast<double>(n_heads);
    for (size_t h = 0; h < n_heads; ++h) {
      const auto n_rows = static_cast<int32_t>(layer.score[h].size());
      minimum[h] = minimum_rows(layer.is_protected[h], layer.score[h].size());
      sure[h] = std::max(minimum[h], static_cast<int32_t>(std::min<double>(share, n_rows)));
    }
    std::vector<int32_t> rows =
        level_fill(minimum, sure, total);  // `sure`, or less where the minima leave no room for it
    const int64_t left = total - std::accumulate(rows.begin(), rows.end(), int64_t{0});
    if (left <= 0)
      return rows;

    std::vector<Unit> rivals;
    for (size_t h = 0; h < n_heads; ++h)
      append_rivals(layer, h, rows[h], rivals);
    const Taken taken = take_best(rivals, left);
    for (size_t u = 0; u < taken.n_units; ++u) {
      const bool is_last = u + 1 == taken.n_units;
      rows[static_cast<size_t>(rivals[u].head)] += is_last ? taken.rows_of_last : rivals[u].n_rows;
    }
    return rows;
  }

 private:
  // What head h still has to offer beyond the `sure` rows it gets anyway: these are its protected rows and its best
  // others.
  static void append_rivals(const LayerScores& layer, size_t h, int32_t sure, std::vector<Unit>& rivals) {
    const auto& flags = layer.is_protected[h];
    const auto n_protected = std::count_if(flags.begin(), flags.end(), [](uint8_t flag) { return flag != 0; });
    std::vector<Unit> units;
    append_units(layer.score[h], flags, layer.chunk, static_cast<int32_t>(h), units);
    const Taken taken = take_best(units, sure - n_protected);
    size_t first = taken.n_units;
    if (taken.n_units > 0 && taken.rows_of_last < units[first - 1].n_rows) {
      units[--first].n_rows -= taken.rows_of_last;  // the rest of a chunk that is cut competes with the chunk's score
    }
    rivals.insert(rivals.end(), units.begin() + static_cast<int64_t>(first), units.end());
  }

  double floor_;
};

std::unique_ptr<Allocator> make(const OptionValues& options) {
  return std::make_unique<Pooled>(options.numbers.at("floor"));
}

}  // namespace

Method allocator_pooled() {
  return {.info = {.name = "pooled",
                   .summary = "one top-k over the rows of all heads of a layer",
                   .source = "Ada-KV, arXiv 2407.11550; AnDPro, OpenReview Tdl89SZItB",
                   .options = {real_option("floor", "0", {0, 1}, "share of an even split that each head is sure of")}},
          .make_allocator = make};
}

}  // namespace kedge::eviction
