// Observations that scorers ask for: the last W query rows of every layer (after RoPE) and the heads' outputs for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "attention/running_anchor.h"
#include "base/huge_pages.h"

namespace kedge::attention {

struct TapShape {
  int n_layers = 0;
  int window = 0;  // W; 0 = nothing is recorded
  int n_heads = 0;
  int head_dim = 0;
  int running_every = 0;  // > 0: a running mean of the last W outputs is kept, and recomputed once in so many tokens
};

// Query rows of one kv head, oldest first, as scorers see them.
struct ObservedWindow {
  std::vector<float> q;            // f32 [n][group][head_dim]
  std::vector<float> y;            // f32 [n][group][head_dim]
  std::vector<int32_t> positions;  // i32 [n]
  std::vector<float> running_y;    // f32 [group][head_dim]; empty: not kept
};

// A ring per layer: the row of position p lives in slot p % W. Different (layer, head) may be recorded concurrently.
class Taps {
 public:
  explicit Taps(const TapShape& shape);
  int window() const { return shape_.window; }

  struct Row {
    int layer;
    int head;  // query head
    int32_t position;
    const float* q;  // f32 [head_dim]
    const float* y;  // f32 [head_dim]
  };
  void record(const Row& row);

  // The newest rows below position n_tokens that were recorded without a gap, at most W.
  struct Query {
    int layer;
    int first_head;  // query heads first_head .. first_head + group - 1
    int group;
    int32_t n_tokens;
  };
  ObservedWindow gather(const Query& query) const;

  AnchorDrift drift() const { return running_.drift(); }

  // Whether gather() at n_tokens gives what it gave when the sequence was that long: nothing it saw was overwritten
  // since.
  bool reach_back_to(int32_t n_tokens) const;
  // Forgets what positions at and beyond n_tokens left behind.
  void truncate(int32_t n_tokens);

  // Everything recorded, for files: f32 [n_layers][n_heads][window][head_dim] twice, i32 [n_layers][n_heads][window].
  struct Contents {
    std::span<const float> q;
    std::span<const float> y;
    std::span<const int32_t> positions;
  };
  Contents contents() const { return {.q = q_, .y = y_, .positions = positions_}; }
  // Takes over contents of the same shape. Empty = fine; else what was found and what is allowed, and nothing changed.
  std::string load(const Contents& contents, int64_t n_tokens);
  RunningAnchor& running() { return running_; }
  const RunningAnchor& running() const { return running_; }

  // Takes over the newest rows below position n_tokens that `other`, of at least this window, has recorded.
  void copy_from(const Taps& other, int32_t n_tokens);

 private:
  std::vector<float> ring_mean(int layer, int head) const;
  size_t slot(int layer, int head, int32_t position) const;

  TapShape shape_;
  using Ring = std::vector<float, HugePageAllocator<float>>;
  Ring q_;                          // f32 [n_layers][n_heads][window][head_dim]
  Ring y_;                          // same
  std::vector<int32_t> positions_;  // i32 [n_layers][n_heads][window], -1 = empty
  RunningAnchor running_;
};

}  // namespace kedge::attention
