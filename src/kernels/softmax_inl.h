// The running softmax that decode and prefill share. Scores are in units of log 2 (queries are multiplied by
// log2(e) once), so that weights are powers of two. Over the vectors of simd_*.h.
#pragma once

#include <limits>

#include "kernels/attention_targets.h"

namespace kedge {
namespace {

constexpr int kStepVecs = kStepRows / simd::kLanes;
constexpr float kLog2e = 1.44269504F;
constexpr float kLn2 = 0.693147181F;

// "No row yet". Finite, so that the difference of two of them is 0 and not NaN.
constexpr float kNoMaximum = std::numeric_limits<float>::lowest();

// Running state of N query rows.
struct SoftmaxRows {
  float* m;           // f32 [N], from kNoMaximum on
  float* l;           // f32 [N][kLanes]: partial sums of weights, added up at the very end
  float* correction;  // f32 [N], written: what the sums so far have to be multiplied by
};

// s: f32 [N][64] scores, turned into weights relative to the new maximum. Of row i the first visible[i] columns count,
// the others become 0 (whatever they hold). n_vecs: vectors of columns to write; kFull: all of them, all visible.
template <int N, bool kFull>
[[gnu::always_inline]] inline void soften_rows(float* s, int n_vecs, const int* visible, const SoftmaxRows& state) {
  using namespace simd;
  const int n = kFull ? kStepVecs : n_vecs;
  alignas(64) float m_new[16];
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) {
    float* row = s + i * kStepRows;
    Vec highest = set1(state.m[i]);
#pragma GCC unroll 8
    for (int j = 0; j < n; ++j) {
      Vec x = load(row + j * kLanes);
      if constexpr (!kFull) {
        x = first_or(x, visible[i] - j * kLanes, set1(-std::numeric_limits<float>::infinity()));
        store(row + j * kLanes, x);
      }
      highest = max(highest, x);
    }
    m_new[i] = reduce_max(highest);
  }
  store_first(state.correction, exp2(sub(load_first(state.m, N), load_first(m_new, N))), N);
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) {
    float* row = s + i * kStepRows;
    const Vec base = set1(m_new[i]);
    Vec sum = zero();
#pragma GCC unroll 8
    for (int j = 0; j < n; ++j) {
      const Vec weight = exp2(sub(load(row + j * kLanes), base));
      store(row + j * kLanes, weight);
      sum = add(sum, weight);
    }
    float* l = state.l + i * kLanes;
    store(l, fma(load(l), set1(state.correction[i]), sum));
    state.m[i] = m_new[i];
  }
}

}  // namespace
}  // namespace kedge
