// Small matrix products on one thread, for fitting. Every element is one sum in f32, ascending by k, a rounded product
// and a rounded addition a term: the same bits on every instruction set, and whatever part of C a call computes.
#pragma once

#include <cstdint>

namespace kedge::gate {

// C := A B, or C += A B.
struct Gemm {
  int m = 0, n = 0, k = 0;
  const float* a = nullptr;  // f32 [m][k]: element (i, l) is a[i * a_row + l * a_column]
  int64_t a_row = 0;
  int64_t a_column = 1;
  const float* b = nullptr;  // f32 [k][n]: element (l, j) is b[l * b_row + j]
  int64_t b_row = 0;
  float* c = nullptr;  // f32 [m][n]: element (i, j) is c[i * c_row + j]
  int64_t c_row = 0;
  bool add = false;
};

enum class GemmTarget { baseline, avx2, avx512 };

bool gemm_supported(GemmTarget target);  // by this processor
// `target` must be supported.
void gemm_on(GemmTarget target, const Gemm& product);
// On the widest target.
void gemm(const Gemm& product);

}  // namespace kedge::gate
