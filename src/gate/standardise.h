// Internal to fitting: examples as standardised f32 rows.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "base/executor.h"
#include "gate/fit.h"

namespace kedge::gate {

// A finite f16. No branch and no subnormal f32 on the way, so that loops over it become vector code.
inline float widen(uint16_t half) {
  const uint32_t magnitude = (half & 0x7FFFU) << 13;
  const float normal = std::bit_cast<float>(magnitude + (112U << 23));
  const float subnormal = std::bit_cast<float>(magnitude + (113U << 23)) - 0x1p-14F;
  const float value = magnitude < (1U << 23) ? subnormal : normal;
  return (half & 0x8000U) != 0 ? -value : value;
}

struct Columns {
  std::vector<float> mean;
  std::vector<float> scale;  // 1 / standard deviation; 0 where the column is constant
};

// Error failed: no rows, or the first row of `name` whose input or label is not finite. The sizes must agree (checked).
Status check_examples(const Examples& examples, const char* name);

Columns input_columns(const Examples& examples, Executor& executor);
Columns label_columns(const Examples& examples);

// x' = (x - mean) * scale; both f32 [n_embd] or [n_heads]
void standardise_input(const Examples& examples, int64_t row, const Columns& columns, float* out);
void standardise_label(const Examples& examples, int64_t row, const Columns& columns, float* out);

}  // namespace kedge::gate
