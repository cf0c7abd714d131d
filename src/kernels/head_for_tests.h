// A kv head made up for tests and benchmarks: random rows in shuffled blocks, poison everywhere else.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <ostream>
#include <random>
#include <span>
#include <vector>

#include "kernels/attention.h"

namespace kedge {

enum class Poison { zero, nan, huge };

struct TestHeadOptions {
  RowTypes type = RowType::f16;
  int head_dim = 64;
  int n_rows = 0;
  int n_tail = -1;              // of these, in an f16 tail; -1: some, if the type is quantised
  Poison poison = Poison::nan;  // slots beyond n_rows, and blocks that are not the head's
  int position_gap = 1;         // positions ascend by 1..position_gap
  bool shuffle = true;
  unsigned seed = 1;
};

class TestHead {
 public:
  explicit TestHead(const TestHeadOptions& options) : options_(options), random_(options.seed) {
    if (options_.n_tail < 0)
      options_.n_tail = options.type.quantised() ? std::min(options.n_rows, options.n_rows * 5 % 49) : 0;
    make_part(body_, options.type, options.n_rows - options_.n_tail);
    make_part(tail_, RowType::f16, options_.n_tail);
    write_rows();
  }

  KvHeadView view() const {
    return {.blocks = body_.base,
            .positions = body_.positions.data(),
            .block_ids = body_.ids.data(),
            .n_rows = options_.n_rows,
            .head_dim = options_.head_dim,
            .type = options_.type,
            .tail_blocks = tail_.base,
            .tail_positions = tail_.positions.data(),
            .tail_ids = tail_.ids.data(),
            .n_tail = options_.n_tail};
  }
  int last_position() const { return options_.n_rows == 0 ? 0 : view().position(options_.n_rows - 1); }

 private:
  struct Part {
    RowTypes type;
    std::vector<uint32_t> ids;
    std::vector<int32_t> positions;
    size_t block_bytes = 0;
    std::vector<std::byte> arena;
    std::byte* base = nullptr;
  };

  void make_part(Part& part, RowTypes type, int n_rows) {
    const int n_blocks = (n_rows + kBlockRows - 1) / kBlockRows;
    const int n_total = n_blocks + 3;
    part.type = type;
    part.ids.resize(static_cast<size_t>(n_total));
    std::iota(part.ids.begin(), part.ids.end(), 0U);
    if (options_.shuffle)
      std::shuffle(part.ids.begin(), part.ids.end(), random_);
    part.ids.resize(static_cast<size_t>(n_blocks));
    part.block_bytes = block_layout(options_.head_dim, type).bytes;
    part.arena.resize(part.block_bytes * static_cast<size_t>(n_total) + 64);
    part.base = part.arena.data() + (64 - reinterpret_cast<uintptr_t>(part.arena.data()) % 64) % 64;
    part.positions.assign(static_cast<size_t>(n_total) * kBlockRows, -12345);
    poison(part);
  }
  // Quantised parts: NaN and huge scales, arbitrary codes.
  void poison(Part& part) const {
    const bool bf16 = part.type == RowType::bf16;
    uint16_t pattern = 0;
    if (options_.poison == Poison::nan)
      pattern = bf16 ? 0x7FC0 : 0x7E00;
    if (options_.poison == Poison::huge)
      pattern = bf16 ? 0x7F7F : 0x7BFF;
    auto* halves = reinterpret_cast<uint16_t*>(part.base);
    std::fill(halves, halves + (part.arena.size() - 64) / 2, pattern);
  }
  void write_rows() {
    std::normal_distribution<float> normal;
    std::vector<float> k(static_cast<size_t>(options_.head_dim));
    std::vector<float> v(k.size());
    int position = 0;
    const int n_body = options_.n_rows - options_.n_tail;
    for (int row = 0; row < options_.n_rows; ++row) {
      for (float& x : k)
        x = normal(random_);
      for (float& x : v)
        x = normal(random_);
      Part& part = row < n_body ? body_ : tail_;
      const int at = row < n_body ? row : row - n_body;
      const size_t block = part.ids[static_cast<size_t>(at / kBlockRows)];
      write_row(part.base + block * part.block_bytes, at % kBlockRows, options_.head_dim, part.type, k.data(),
                v.data());
      position += 1 + static_cast<int>(random_() % static_cast<unsigned>(options_.position_gap));
      part.positions[block * kBlockRows + static_cast<size_t>(at % kBlockRows)] = position;
    }
  }

  TestHeadOptions options_;
  std::mt19937 random_;
  Part body_;
  Part tail_;
};

// Every pair of types.
inline std::vector<RowTypes> all_types() {
  std::vector<RowTypes> out;
  for (const RowType k : {RowType::f16, RowType::bf16, RowType::q8, RowType::q4}) {
    for (const RowType v : {RowType::f16, RowType::bf16, RowType::q8, RowType::q4})
      out.emplace_back(k, v);
  }
  return out;
}

inline void PrintTo(RowTypes type, std::ostream* out) {
  const char* const names[] = {"f16", "bf16", "q8", "q4"};
  *out << names[static_cast<int>(type.k)] << "/" << names[static_cast<int>(type.v)];
}

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
  for (const char* name : {"avx2", "avx512", "avx512vnni", "avx512bf16"}) {
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
