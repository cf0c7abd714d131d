// A kv head made up for tests and benchmarks: random rows in shuffled blocks, poison everywhere else.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "kernels/attention.h"

namespace kedge {

enum class Poison { zero, nan, huge };

struct TestHeadOptions {
  RowType type = RowType::f16;
  int head_dim = 64;
  int n_rows = 0;
  Poison poison = Poison::nan;  // slots beyond n_rows, and blocks that are not the head's
  int position_gap = 1;         // positions ascend by 1..position_gap
  bool shuffle = true;
  unsigned seed = 1;
};

class TestHead {
 public:
  explicit TestHead(const TestHeadOptions& options) : options_(options), random_(options.seed) {
    const int n_blocks = (options.n_rows + kBlockRows - 1) / kBlockRows;
    const int n_total = n_blocks + 3;
    ids_.resize(static_cast<size_t>(n_total));
    std::iota(ids_.begin(), ids_.end(), 0U);
    if (options.shuffle)
      std::shuffle(ids_.begin(), ids_.end(), random_);
    ids_.resize(static_cast<size_t>(n_blocks));
    block_bytes_ = static_cast<size_t>(options.head_dim) * kBlockRows * 4;
    arena_.resize(block_bytes_ * static_cast<size_t>(n_total) + 64);
    base_ = arena_.data() + (64 - reinterpret_cast<uintptr_t>(arena_.data()) % 64) % 64;
    positions_.assign(static_cast<size_t>(n_total) * kBlockRows, -12345);
    poison();
    write_rows();
  }

  KvHeadView view() const {
    return {.blocks = base_,
            .positions = positions_.data(),
            .block_ids = ids_.data(),
            .n_rows = options_.n_rows,
            .head_dim = options_.head_dim,
            .type = options_.type};
  }
  int last_position() const { return options_.n_rows == 0 ? 0 : view().position(options_.n_rows - 1); }

 private:
  void poison() {
    const bool f16 = options_.type == RowType::f16;
    uint16_t pattern = 0;
    if (options_.poison == Poison::nan)
      pattern = f16 ? 0x7E00 : 0x7FC0;
    if (options_.poison == Poison::huge)
      pattern = f16 ? 0x7BFF : 0x7F7F;
    auto* halves = reinterpret_cast<uint16_t*>(base_);
    std::fill(halves, halves + (arena_.size() - 64) / 2, pattern);
  }
  void write_rows() {
    std::normal_distribution<float> normal;
    std::vector<float> k(static_cast<size_t>(options_.head_dim));
    std::vector<float> v(k.size());
    int position = 0;
    for (int row = 0; row < options_.n_rows; ++row) {
      for (float& x : k)
        x = normal(random_);
      for (float& x : v)
        x = normal(random_);
      const size_t block = ids_[static_cast<size_t>(row / kBlockRows)];
      write_row(base_ + block * block_bytes_, row % kBlockRows, options_.head_dim, options_.type, k.data(), v.data());
      position += 1 + static_cast<int>(random_() % static_cast<unsigned>(options_.position_gap));
      positions_[block * kBlockRows + static_cast<size_t>(row % kBlockRows)] = position;
    }
  }

  TestHeadOptions options_;
  std::mt19937 random_;
  std::vector<uint32_t> ids_;
  std::vector<int32_t> positions_;
  size_t block_bytes_ = 0;
  std::vector<std::byte> arena_;
  std::byte* base_ = nullptr;
};

inline std::vector<float> random_floats(size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(n);
  for (float& x : out)
    x = normal(random);
  return out;
}

inline const AttentionKernels& ref_kernels() { return *attention_kernels("ref"); }

// Every set but the oracle that this CPU can run.
inline std::vector<const AttentionKernels*> fast_kernels() {
  std::vector<const AttentionKernels*> out;
  for (const char* name : {"avx2", "avx512", "avx512bf16"}) {
    if (const AttentionKernels* kernels = attention_kernels(name))
      out.push_back(kernels);
  }
  return out;
}

// Largest |x - y|; infinite when one of them is not a number, or infinite where the other is not.
inline double max_difference(std::span<const float> x, std::span<const float> y) {
  double largest = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (x[i] == y[i])
      continue;
    const double difference = std::fabs(static_cast<double>(x[i]) - static_cast<double>(y[i]));
    largest = std::isnan(difference) ? INFINITY : std::max(largest, difference);
  }
  return largest;
}

}  // namespace kedge
