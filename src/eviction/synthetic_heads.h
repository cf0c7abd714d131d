// Made-up heads for the tests of this folder: ragged positions with gaps, blocks scattered over an arena, queries with
// the outputs that attention over these rows gives.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "eviction/policy.h"
#include "kernels/attention.h"

namespace kedge::eviction {

struct SyntheticSpec {
  int n_rows = 300;
  int head_dim = 64;
  int group = 3;
  int n_window = 32;
  double gap = 0.3;  // probability that the position before a row is missing
  int tail = 0;      // newest rows without gaps
  RowType type = RowType::f16;
  uint32_t seed = 1;
  int head = 0;
  int n_embd = 24;  // of w_o; not a multiple of a vector's lanes
};

// Owns what a HeadInput points to. Not movable once made: hold it by pointer.
struct SyntheticHead {
  explicit SyntheticHead(const SyntheticSpec& spec) : spec_(spec), random_(spec.seed) {
    make_rows();
    make_queries();
    make_outputs();
    make_histories();
    w_o.resize(static_cast<size_t>(spec.group) * spec.head_dim * spec.n_embd);
    for (float& value : w_o)
      value = normal();
  }
  SyntheticHead(const SyntheticHead&) = delete;
  SyntheticHead& operator=(const SyntheticHead&) = delete;

  HeadInput input() const {
    HeadInput in;
    in.layer = 5;
    in.head = spec_.head;
    in.rows = view;
    in.q = q.data();
    in.y = y.data();
    in.query_positions = query_positions.data();
    in.n_window = spec_.n_window;
    in.group = spec_.group;
    in.scale = 1.0F / std::sqrt(static_cast<float>(spec_.head_dim));
    in.n_tokens = n_tokens;
    in.seed = 7;
    in.kernels = &best_attention_kernels();
    in.w_o = w_o.data();
    in.n_embd = spec_.n_embd;
    in.attention_sum = attention_sum;
    in.past = past;
    in.echo = echo;
    in.reconstruction = reconstruction;
    in.gate = gate;
    in.moments = &moments;
    in.rotation = &rotation;
    in.tokens = tokens;
    in.token_kinds = token_kinds;
    return in;
  }

  // a[t][g][i], plain and in double.
  double weight(int t, int g, int i) const {
    return weights[(t * spec_.group + g) * static_cast<size_t>(view.n_rows) + i];
  }

  KvHeadView view{};
  std::vector<int32_t> row_positions;  // [n_rows]
  std::vector<float> k, v;             // f32 [n_rows][head_dim], as stored
  std::vector<float> q, y;             // f32 [n_window][group][head_dim]
  std::vector<int32_t> query_positions;
  std::vector<double> weights;                       // [n_window][group][n_rows]
  std::vector<float> attention_sum, reconstruction;  // f32 [n_rows]; every ninth row has no reconstruction
  std::vector<float> gate;                           // f32 [n_rows]
  std::vector<float> past, echo;                     // f32 [n_rows]; every seventh row has no past, every fifth no echo
  QueryMoments moments;
  Rotation rotation;
  std::vector<int32_t> tokens;  // [n_tokens]
  std::vector<uint8_t> token_kinds;
  std::vector<float> w_o;  // f32 [group][head_dim][n_embd]
  int32_t n_tokens = 0;

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  float normal() { return std::normal_distribution<float>()(random_); }

  void make_rows() {
    const int n = spec_.n_rows;
    const int n_blocks = (n + kBlockRows - 1) / kBlockRows;
    view.head_dim = spec_.head_dim;
    view.n_rows = n;
    view.type = spec_.type;
    arena_.resize((n_blocks + 2) * view.block_bytes() / sizeof(Line));
    std::byte* bytes = arena_[0].bytes;
    block_positions_.assign((n_blocks + 2) * kBlockRows, -1);
    block_ids_.resize(n_blocks + 2);
    std::iota(block_ids_.begin(), block_ids_.end(), 0U);
    std::shuffle(block_ids_.begin(), block_ids_.end(), random_);
    view.blocks = bytes;
    view.positions = block_positions_.data();
    view.block_ids = block_ids_.data();
    std::vector<float> key(spec_.head_dim);
    std::vector<float> value(spec_.head_dim);
    int32_t position = -1;
    for (int i = 0; i < n; ++i) {
      ++position;
      while (i + spec_.tail < n && std::uniform_real_distribution<>()(random_) < spec_.gap)
        ++position;
      row_positions.push_back(position);
      const float size = 1 + std::abs(normal());
      for (int j = 0; j < spec_.head_dim; ++j) {
        key[j] = normal() * 1.5F;
        value[j] = normal() * size + 0.3F;
      }
      const uint32_t id = block_ids_[i / kBlockRows];
      write_row(bytes + id * view.block_bytes(), i % kBlockRows, spec_.head_dim, spec_.type, key.data(), value.data());
      block_positions_[id * kBlockRows + i % kBlockRows] = position;
    }
    n_tokens = position + 1;
    k.resize(static_cast<size_t>(n) * spec_.head_dim);
    v.resize(k.size());
    read_rows(view, 0, n, k.data(), v.data());
  }

  void make_queries() {
    q.resize(static_cast<size_t>(spec_.n_window) * spec_.group * spec_.head_dim);
    for (float& value : q)
      value = normal();
    for (int t = 0; t < spec_.n_window; ++t)
      query_positions.push_back(n_tokens - spec_.n_window + t);
  }

  void make_outputs() {
    const int d = spec_.head_dim;
    const double scale = 1.0 / std::sqrt(static_cast<double>(d));
    y.assign(q.size(), 0.0F);
    for (int m = 0; m < spec_.n_window * spec_.group; ++m) {
      std::vector<double> a(view.n_rows, 0);
      double sum = 0;
      for (int i = 0; i < view.n_rows; ++i) {
        if (row_positions[i] > query_positions[m / spec_.group])
          continue;
        double dot = 0;
        for (int j = 0; j < d; ++j)
          dot += double{q[m * d + j]} * k[static_cast<size_t>(i) * d + j];
        a[i] = std::exp(dot * scale);
        sum += a[i];
      }
      for (double& weight : a)
        weight = sum > 0 ? weight / sum : 0;
      for (int j = 0; j < d; ++j) {
        double out = 0;
        for (int i = 0; i < view.n_rows; ++i)
          out += a[i] * v[static_cast<size_t>(i) * d + j];
        y[m * d + j] = static_cast<float>(out);
      }
      weights.insert(weights.end(), a.begin(), a.end());
    }
  }

  // What a session would have recorded: here the window's queries are all there were, and were not rotated.
  void make_histories() {
    const auto d = static_cast<size_t>(spec_.head_dim);
    const auto group = static_cast<size_t>(spec_.group);
    for (size_t j = 0; j < d / 2; ++j)
      rotation.frequency.push_back(std::pow(10000.0F, -2.0F * static_cast<float>(j) / static_cast<float>(d)));
    for (int i = 0; i < spec_.n_rows; ++i) {
      float sum = 0;
      for (int m = 0; m < spec_.n_window * spec_.group; ++m)
        sum += static_cast<float>(weights[static_cast<size_t>(m) * spec_.n_rows + i]) / static_cast<float>(spec_.group);
      attention_sum.push_back(sum);
      past.push_back(i % 7 == 6 ? 0.0F : sum / static_cast<float>(spec_.n_window));
      echo.push_back(i % 5 == 4 ? 0.0F : 0.02F + 0.9F * static_cast<float>((i * 37 + 11) % 101) / 101.0F);
      gate.push_back(4.0F * static_cast<float>((i * 53 + 7) % 97) / 97.0F - 2.0F);
      reconstruction.push_back(i % 9 == 8 ? 0.0F : std::uniform_real_distribution<float>(0.001F, 1.0F)(random_));
    }
    moments = {.n_queries = spec_.n_window, .sum = {}, .outer = {}, .length = {}};
    moments.sum.assign(group * d, 0.0);
    moments.outer.assign(group * d * d, 0.0);
    moments.length.assign(group * d / 2, 0.0);
    for (size_t m = 0; m < q.size() / d; ++m) {
      const float* x = &q[m * d];
      const size_t g = m % group;
      for (size_t i = 0; i < d; ++i) {
        moments.sum[g * d + i] += x[i];
        for (size_t j = 0; j < d; ++j)
          moments.outer[(g * d + i) * d + j] += double{x[i]} * x[j];
      }
      for (size_t j = 0; j < d / 2; ++j)
        moments.length[g * d / 2 + j] += std::hypot(double{x[2 * j]}, x[2 * j + 1]);
    }
    for (int32_t p = 0; p < n_tokens; ++p) {
      tokens.push_back(p % 97);
      token_kinds.push_back(p % 50 == 0 ? kSpecialToken : p % 11 == 3 ? kPunctuationToken : 0);
    }
  }

  SyntheticSpec spec_;
  std::mt19937 random_;
  std::vector<Line> arena_;
  std::vector<int32_t> block_positions_;
  std::vector<uint32_t> block_ids_;
};

using SyntheticLayer = std::vector<std::unique_ptr<SyntheticHead>>;

inline std::vector<HeadInput> inputs_of(const SyntheticLayer& layer) {
  std::vector<HeadInput> inputs;
  for (const auto& head : layer)
    inputs.push_back(head->input());
  return inputs;
}

inline Policy policy_of(std::string_view text) { return std::move(parse_policy(text, {})).value(); }

}  // namespace kedge::eviction
