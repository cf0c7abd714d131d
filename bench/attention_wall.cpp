#include "attention_wall.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/clock.h"
#include "base/read_wall.h"
#include "kernels/attention.h"
#include "kv/store.h"
#include "tensor/compute.h"

namespace kedge::bench {

namespace {

constexpr int64_t kCacheBytes = int64_t{1} << 30;
constexpr int kLayers = 30;
constexpr int kRepetitions = 7;

struct Workload {
  kv::Store& store;
  kv::SequenceId sequence;
  int group;
  int head_dim;
  int n_kv_heads;
};

void attend_all(const Workload& w, const std::vector<float>& q, Executor& executor) {
  const AttentionKernels& kernels = best_attention_kernels();
  executor.run([&](int ith, int nth) {
    std::vector<float> partial(static_cast<size_t>(partial_floats(w.group, w.head_dim)));
    for (int layer = 0; layer < kLayers; ++layer) {
      for (int head = 0; head < w.n_kv_heads; ++head) {
        const KvHeadView rows = w.store.view(w.sequence, layer, head);
        const long segments = (rows.n_rows + kSegmentRows - 1) / kSegmentRows;
        const Share share = share_of(segments, ith, nth);
        for (long s = share.begin; s < share.end; ++s) {
          const auto begin = static_cast<int>(s) * kSegmentRows;
          kernels.attend_segment(rows, begin, std::min(rows.n_rows, begin + kSegmentRows), q.data(), w.group, 0.125F,
                                 partial.data());
        }
      }
    }
  });
}

void fill(const Workload& w, int n_rows, Executor& executor) {
  std::vector<float> row(static_cast<size_t>(w.head_dim) * 256);
  for (size_t i = 0; i < row.size(); ++i)
    row[i] = static_cast<float>(i % 17) * 0.1F - 0.8F;
  executor.run([&](int ith, int nth) {
    std::vector<int32_t> positions(256);
    for (int h = ith; h < kLayers * w.n_kv_heads; h += nth) {
      for (int begin = 0; begin < n_rows; begin += 256) {
        std::iota(positions.begin(), positions.end(), begin);
        w.store.append(w.sequence, h / w.n_kv_heads, h % w.n_kv_heads,
                       {row.data(), row.data(), w.head_dim, w.head_dim, positions});
      }
    }
  });
}

}  // namespace

AttentionWall measure_attention_wall(int n_kv_heads, int group, int head_dim, int n_threads) {
  AttentionWall out;
  const kv::StoreShape shape{.n_layers = kLayers, .n_kv_heads = n_kv_heads, .head_dim = head_dim};
  const int64_t row_bytes = int64_t{2} * head_dim * kRowTypeBytes;
  const auto n_rows = static_cast<int>(kCacheBytes / row_bytes / kLayers / n_kv_heads / 256 * 256);
  auto compute = tensor::Compute::create({.n_threads = n_threads});
  auto store = kv::Store::create(shape, kv::bytes_for_rows(shape, n_rows, static_cast<int64_t>(kLayers) * n_kv_heads));
  if (!compute || !store)
    return out;
  const Workload w{**store, (*store)->create_sequence(), group, head_dim, n_kv_heads};
  for (int layer = 0; layer < kLayers; ++layer) {  // head by head, so that each head's blocks are one run
    if (!(*store)->reserve(w.sequence, layer, layer + 1, n_rows))
      return out;
  }
  fill(w, n_rows, **compute);
  out.cache_bytes = int64_t{n_rows} * row_bytes * kLayers * n_kv_heads;
  const ReadBuffer buffer(static_cast<size_t>(out.cache_bytes));
  const std::vector<float> q(static_cast<size_t>(group) * head_dim, 0.3F);
  double read_seconds = 1e9;
  double attention_seconds = 1e9;
  for (int i = 0; i < kRepetitions; ++i) {
    read_seconds = std::min(read_seconds, best_read_seconds(buffer, **compute));
    const Stopwatch attending;
    attend_all(w, q, **compute);
    attention_seconds = std::min(attention_seconds, attending.seconds());
  }
  out.read_gb_s = static_cast<double>(out.cache_bytes) / read_seconds * 1e-9;
  out.attention_gb_s = static_cast<double>(out.cache_bytes) / attention_seconds * 1e-9;
  out.ns_per_row = attention_seconds * 1e9 / (static_cast<double>(n_rows) * kLayers * n_kv_heads);
  return out;
}

}  // namespace kedge::bench
