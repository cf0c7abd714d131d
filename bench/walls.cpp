#include "walls.h"

#include <immintrin.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/read_wall.h"
#include "kernels/attention.h"

namespace kedge::bench {
namespace {

constexpr int kTries = 5;
constexpr int kRounds = 20000;
constexpr int kChains = 12;

// Twelve independent chains keep both multiply-add units of a core busy. Each starts from a value of its own (else the
// compiler keeps one chain) and converges to 1.
__attribute__((target("avx2,fma"))) float multiply_add_avx2() {
  __m256 sum[kChains];
  for (int i = 0; i < kChains; ++i)
    sum[i] = _mm256_set1_ps(static_cast<float>(i));
  const __m256 half = _mm256_set1_ps(0.5F);
  for (int i = 0; i < kRounds; ++i) {
#pragma GCC unroll 12
    for (auto& x : sum)
      x = _mm256_fmadd_ps(x, half, half);
  }
  for (auto& x : sum)
    sum[0] = _mm256_add_ps(sum[0], x);
  return _mm256_cvtss_f32(sum[0]);
}

__attribute__((target("avx512f"))) float multiply_add_avx512() {
  __m512 sum[kChains];
  for (int i = 0; i < kChains; ++i)
    sum[i] = _mm512_set1_ps(static_cast<float>(i));
  const __m512 half = _mm512_set1_ps(0.5F);
  for (int i = 0; i < kRounds; ++i) {
#pragma GCC unroll 12
    for (auto& x : sum)
      x = _mm512_fmadd_ps(x, half, half);
  }
  for (auto& x : sum)
    sum[0] = _mm512_add_ps(sum[0], x);
  return _mm512_cvtss_f32(sum[0]);
}

#ifndef __clang__
__attribute__((target("avx512f,avx512bf16"))) float multiply_add_bf16() {
  __m512 sum[kChains];
  for (int i = 0; i < kChains; ++i)
    sum[i] = _mm512_set1_ps(static_cast<float>(i));
  const auto half = (__m512bh)_mm512_set1_epi32(0x3F003F00);
  for (int i = 0; i < kRounds; ++i) {
#pragma GCC unroll 12
    for (auto& x : sum)
      x = _mm512_dpbf16_ps(x, half, half);
  }
  for (auto& x : sum)
    sum[0] = _mm512_add_ps(sum[0], x);
  return _mm512_cvtss_f32(sum[0]);
}
#endif

// One flop is one multiplication or one addition.
std::vector<Peak> find_peaks() {
  const double lanes = double{kChains} * kRounds * 2;
  std::vector<Peak> out;
  if (attention_kernels("avx2") != nullptr)
    out.push_back({.target = "avx2", .loop = multiply_add_avx2, .flops = lanes * 8});
  if (attention_kernels("avx512") != nullptr)
    out.push_back({.target = "avx512", .loop = multiply_add_avx512, .flops = lanes * 16});
#ifndef __clang__
  if (attention_kernels("avx512bf16") != nullptr)
    out.push_back({.target = "avx512bf16", .loop = multiply_add_bf16, .flops = lanes * 32});
#endif
  return out;
}

double measure_read(size_t n_bytes, int n_threads) {
  const ReadBuffer buffer(n_bytes);
  check(buffer.ok(), "memory for the read buffer");
  ThreadExecutor threads(n_threads);
  double seconds = best_read_seconds(buffer, threads);
  for (int i = 1; i < kTries; ++i)
    seconds = std::min(seconds, best_read_seconds(buffer, threads));
  return static_cast<double>(n_bytes) / seconds * 1e-9;
}

double measure_peak(const Peak& peak, int n_threads) {
  ThreadExecutor threads(n_threads);
  double seconds = 1e9;
  for (int i = 0; i < kTries; ++i) {
    const Stopwatch watch;
    threads.run([&](int, int) { check(peak.loop() > 0, "the chains converge to 1"); });
    seconds = std::min(seconds, watch.seconds());
  }
  return peak.flops * n_threads / seconds * 1e-9;
}

}  // namespace

std::span<const Peak> peaks() {
  static const std::vector<Peak> all = find_peaks();
  return all;
}

double read_gb_s(size_t n_bytes, int n_threads) {
  static std::map<std::pair<size_t, int>, double> known;
  const std::pair<size_t, int> key(n_bytes, n_threads);
  if (!known.contains(key))
    known[key] = measure_read(n_bytes, n_threads);
  return known[key];
}

double peak_gflop_s(std::string_view target, int n_threads) {
  static std::map<std::pair<std::string, int>, double> known;
  for (const Peak& peak : peaks()) {
    if (peak.target != target)
      continue;
    const std::pair<std::string, int> key(target, n_threads);
    if (!known.contains(key))
      known[key] = measure_peak(peak, n_threads);
    return known[key];
  }
  return 0;
}

}  // namespace kedge::bench
