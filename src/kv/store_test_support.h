// Rows that tests can tell apart by value, and a Store with less typing. For *_test.cpp of this folder only.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/attention.h"
#include "kv/store.h"

namespace kedge::kv::test {

// Element d of row `id`: an integer in -128..127, exact in f16 and bf16. V differs from K by its `salt`.
inline float value_of(uint32_t id, int d, uint32_t salt) {
  const uint32_t hash = (id * 2654435761U + static_cast<uint32_t>(d) * 40503U + salt) * 2246822519U;
  return static_cast<float>(static_cast<int>(hash >> 24) - 128);
}

inline std::vector<float> make_rows(std::span<const uint32_t> ids, int head_dim, uint32_t salt) {
  std::vector<float> rows;
  for (const uint32_t id : ids) {
    for (int d = 0; d < head_dim; ++d)
      rows.push_back(value_of(id, d, salt));
  }
  return rows;
}

inline constexpr uint32_t kSaltK = 17;
inline constexpr uint32_t kSaltV = 91;

inline std::unique_ptr<Store> make_store(const StoreShape& shape, int64_t n_blocks) {
  auto store = Store::create(shape, n_blocks * block_bytes_total(shape));
  return store.ok() ? std::move(*store) : nullptr;
}

inline void append_ids(Store& store, SequenceId seq, int layer, int head, std::span<const uint32_t> ids,
                       std::span<const int32_t> positions) {
  const int d = store.shape().head_dim;
  const std::vector<float> k = make_rows(ids, d, kSaltK);
  const std::vector<float> v = make_rows(ids, d, kSaltV);
  store.append(seq, layer, head, {.k = k.data(), .v = v.data(), .k_stride = d, .v_stride = d, .positions = positions});
}

// n rows whose id is their position, first, first + 1, ...
inline void append_run(Store& store, SequenceId seq, int layer, int head, int32_t first, int n) {
  std::vector<int32_t> positions(static_cast<size_t>(n));
  std::iota(positions.begin(), positions.end(), first);
  const std::vector<uint32_t> ids(positions.begin(), positions.end());
  append_ids(store, seq, layer, head, ids, positions);
}

// Do the stored rows of the head hold exactly these ids, K and V?
inline bool holds_ids(const Store& store, SequenceId seq, int layer, int head, std::span<const uint32_t> ids) {
  const KvHeadView view = store.view(seq, layer, head);
  if (view.n_rows != static_cast<int32_t>(ids.size()))
    return false;
  const size_t n_floats = ids.size() * static_cast<size_t>(view.head_dim);
  std::vector<float> k(n_floats);
  std::vector<float> v(n_floats);
  if (view.n_rows > 0)
    read_rows(view, 0, view.n_rows, k.data(), v.data());
  return k == make_rows(ids, view.head_dim, kSaltK) && v == make_rows(ids, view.head_dim, kSaltV);
}

inline std::vector<uint32_t> run_of_ids(uint32_t first, int n) {
  std::vector<uint32_t> ids(static_cast<size_t>(n));
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

}  // namespace kedge::kv::test
