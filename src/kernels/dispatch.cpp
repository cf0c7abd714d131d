// Choice of the kernel set, and what needs no instruction set of its own.
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "kernels/attention_targets.h"

namespace kedge {
namespace {

// __builtin_cpu_supports asks the operating system too (xgetbv), so that a register file it does not save is not used.
bool cpu_has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}
bool cpu_has_avx512() {
  return cpu_has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
bool cpu_has_avx512vnni() { return cpu_has_avx512() && __builtin_cpu_supports("avx512vnni"); }
bool cpu_has_avx512bf16() { return cpu_has_avx512vnni() && __builtin_cpu_supports("avx512bf16"); }

// vdpbf16ps runs at twice the rate of f32 multiply-adds on AMD (Zen 4: 456 against 230 GFLOP/s) and at half of it on
// Intel (Sapphire Rapids: 109 against 223 on one core), so the set is chosen by itself only where it pays.
bool bf16_dots_pay() { return __builtin_cpu_is("amd"); }

struct Target {
  const AttentionKernels* kernels;
  bool supported;
  bool preferred;  // a candidate for the best set
};

const AttentionKernels* find(const char* name) {
  static const Target targets[] = {
      // best first
      {.kernels = &kAvx512Bf16Kernels, .supported = cpu_has_avx512bf16(), .preferred = bf16_dots_pay()},
      {.kernels = &kAvx512VnniKernels, .supported = cpu_has_avx512vnni(), .preferred = true},
      {.kernels = &kAvx512Kernels, .supported = cpu_has_avx512(), .preferred = true},
      {.kernels = &kAvx2Kernels, .supported = cpu_has_avx2(), .preferred = true},
      {.kernels = &kRefKernels, .supported = true, .preferred = true},
  };
  for (const Target& target : targets) {
    if (!target.supported)
      continue;
    if (name == nullptr ? target.preferred : std::strcmp(name, target.kernels->name) == 0)
      return target.kernels;
  }
  return nullptr;
}

}  // namespace

const AttentionKernels& best_attention_kernels() { return *find(nullptr); }

const AttentionKernels* attention_kernels(const char* name) { return name == nullptr ? nullptr : find(name); }

long tile_scratch_floats(int n_queries, int group, int head_dim) {
  check(n_queries >= 0 && n_queries <= kTileQueries && group >= 1 && group <= kMaxGroup, "tile_scratch_floats: tile");
  const long rows = padded_rows(n_queries * group);
  const long q_and_o = 2 * rows * head_dim;
  const long k_and_v = 2L * kStepRows * head_dim;
  const long m_and_l = round_to_line(rows) + 16 * rows;  // l: one vector of partial sums a row
  return q_and_o + k_and_v + m_and_l + kTileRows * kStepRows;
}

void merge_partials(const float* partials, int n, int group, int head_dim, float* y) {
  const long stride = partial_floats(group, head_dim);
  for (int g = 0; g < group; ++g) {
    float m = -std::numeric_limits<float>::infinity();
    for (int i = 0; i < n; ++i)
      m = std::fmax(m, partials[i * stride + g]);
    float* out = y + g * head_dim;
    std::memset(out, 0, static_cast<size_t>(head_dim) * sizeof(float));
    float l = 0;
    for (int i = 0; i < n; ++i) {
      const float* partial = partials + i * stride;
      if (!(partial[group + g] > 0))
        continue;  // an empty segment: m is -inf
      const float weight = std::exp(partial[g] - m);
      l += weight * partial[group + g];
      const float* o = partial + 2 * group + g * head_dim;
      for (int d = 0; d < head_dim; ++d)
        out[d] += weight * o[d];
    }
    if (!(l > 0))
      continue;
    const float inverse = 1 / l;
    for (int d = 0; d < head_dim; ++d)
      out[d] *= inverse;
  }
}

}  // namespace kedge
