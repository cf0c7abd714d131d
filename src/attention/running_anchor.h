// The anchor direction of each query head while tokens go by: the mean of its last W outputs, moved along with every
// token instead of being added up again. Kept in f16 with one scale a head; the rounding adds up, so it is recomputed
// in full precision from time to time, and what had come of it by then is its drift.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kedge::attention {

struct AnchorDrift {
  int64_t recomputations = 0;  // of one head
  double largest = 0;          // 1 - cosine of what was kept and what it should have been
  double sum = 0;
};

class RunningAnchor {
 public:
  RunningAnchor() = default;
  // Recomputed once in `every` tokens of a head, counted by position.
  RunningAnchor(int n_heads, int head_dim, int every);
  bool is_on() const { return head_dim_ > 0; }

  // head: of all layers' query heads. Whether its mean is that of the window that ends with this position.
  bool holds(size_t head, int32_t position) const { return position_[head] == position; }
  struct Move {
    const float* newest;  // f32 [head_dim], comes in
    const float* oldest;  // f32 [head_dim], goes out
    int window;
    int32_t position;  // of the newest
  };
  void move(size_t head, const Move& move);
  bool is_due(int32_t position) const { return position % every_ == 0; }
  // The exact mean, f32 [head_dim]. A head that has one already counts its drift; `is_new`: it has none.
  void recompute(size_t head, std::span<const float> mean, int32_t position, bool is_new);
  std::vector<float> mean(size_t head) const;  // f32 [head_dim]
  AnchorDrift drift() const;

  // Everything, for files. A head's drift is not part of what follows from it.
  struct State {
    std::vector<uint16_t> values;  // f16 [heads][head_dim]
    std::vector<float> scale;      // f32 [heads]
    std::vector<int32_t> position;
  };
  State state() const { return {.values = values_, .scale = scale_, .position = position_}; }
  void restore(const State& state) {  // of the same shape
    values_ = state.values;
    scale_ = state.scale;
    position_ = state.position;
  }

 private:
  void put(size_t head, std::span<const float> mean);

  int head_dim_ = 0;
  int every_ = 1;
  std::vector<uint16_t> values_;    // f16 [heads][head_dim], in units of the head's scale
  std::vector<float> scale_;        // f32 [heads], a power of two: the largest value is 0.5..1 of it when it is set
  std::vector<int32_t> position_;   // i32 [heads], -1: none
  std::vector<AnchorDrift> drift_;  // [heads]: heads may be recorded concurrently
};

}  // namespace kedge::attention
