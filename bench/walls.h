// The walls of this machine, measured when a benchmark program starts: how fast it reads memory, how fast it multiplies
// and adds. A kernel's figure is worth something as a share of one of them, of the same run.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace kedge::bench {

// A loop of independent multiply-adds in registers for one instruction set.
struct Peak {
  std::string_view target;  // as AttentionKernels::name
  float (*loop)();
  double flops;  // of one call
};
std::span<const Peak> peaks();  // those that this CPU runs

// Measured at the first call for these arguments, the best of several, and remembered.
double read_gb_s(size_t n_bytes, int n_threads);              // a buffer of that size, again and again
double peak_gflop_s(std::string_view target, int n_threads);  // 0: no such peak

}  // namespace kedge::bench
