// Attention kernels beside the walls of the machine: how fast it reads memory, how fast it multiplies and adds.
// Compare lines of one run only; --benchmark_repetitions=5 and the smallest time, on a quiet machine.
//   decode/TARGET/TYPE/mb:M/shuffled:S/dim:D/group:G/threads:T   ns per row of one kv head, GB/s, share of the reading
//                                                                of M MiB that the start measured
//   depth16k/...                                                 the same over a whole cache of 30 layers x 3 kv heads
//   tile, weights, anchors     GFLOP/s over the products that the mask leaves, share of the multiply-adds of TARGET
#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "kernels/attention.h"
#include "walls.h"

namespace kedge {
namespace {

// Anonymous memory that asks for huge pages, as an arena of blocks should.
class Arena {
 public:
  explicit Arena(size_t n_bytes) : n_bytes_(n_bytes) {
    void* p = mmap(nullptr, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(p != MAP_FAILED, "mmap");
    madvise(p, n_bytes, MADV_HUGEPAGE);
    data_ = static_cast<std::byte*>(p);
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena() { munmap(data_, n_bytes_); }
  std::byte* data() const { return data_; }
  size_t size() const { return n_bytes_; }

 private:
  std::byte* data_ = nullptr;
  size_t n_bytes_ = 0;
};

struct CacheShape {
  RowTypes type = RowType::f16;
  int head_dim = 64;
  int n_heads = 1;
  int n_rows = 0;  // per head
  bool shuffled = false;
  bool operator==(const CacheShape&) const = default;
};

// Heads full of small random numbers; blocks of a head in sequence, or drawn from the whole arena.
class Cache {
 public:
  explicit Cache(const CacheShape& shape)
      : shape_(shape),
        blocks_per_head_((shape.n_rows + kBlockRows - 1) / kBlockRows),
        arena_(static_cast<size_t>(blocks_per_head_) * shape.n_heads * block_layout(shape.head_dim, shape.type).bytes),
        ids_(static_cast<size_t>(blocks_per_head_) * shape.n_heads),
        positions_(ids_.size() * kBlockRows) {
    std::iota(ids_.begin(), ids_.end(), 0U);
    std::mt19937 random(1);
    if (shape.shuffled)
      std::shuffle(ids_.begin(), ids_.end(), random);
    for (size_t i = 0; i < ids_.size(); ++i) {
      const auto block_of_head = static_cast<int>(i % static_cast<size_t>(blocks_per_head_));
      for (int s = 0; s < kBlockRows; ++s) {
        positions_[ids_[i] * static_cast<size_t>(kBlockRows) + static_cast<size_t>(s)] = block_of_head * kBlockRows + s;
      }
    }
    fill(random);
  }
  const CacheShape& shape() const { return shape_; }
  KvHeadView head(int h) const {
    return {.blocks = arena_.data(),
            .positions = positions_.data(),
            .block_ids = ids_.data() + static_cast<size_t>(h) * static_cast<size_t>(blocks_per_head_),
            .n_rows = shape_.n_rows,
            .head_dim = shape_.head_dim,
            .type = shape_.type};
  }

 private:
  void fill(std::mt19937& random) {
    std::normal_distribution<float> normal;
    const size_t block_bytes = block_layout(shape_.head_dim, shape_.type).bytes;
    std::vector<std::byte> pattern(16 * block_bytes);
    std::vector<float> k(static_cast<size_t>(shape_.head_dim));
    for (size_t block = 0; block < 16; ++block) {
      for (int slot = 0; slot < kBlockRows; ++slot) {
        for (float& x : k)
          x = normal(random);
        write_row(pattern.data() + block * block_bytes, slot, shape_.head_dim, shape_.type, k.data(), k.data());
      }
    }
    for (size_t at = 0; at < arena_.size(); at += pattern.size()) {
      std::memcpy(arena_.data() + at, pattern.data(), std::min(pattern.size(), arena_.size() - at));
    }
  }

  CacheShape shape_;
  int blocks_per_head_;
  Arena arena_;
  std::vector<uint32_t> ids_;
  std::vector<int32_t> positions_;
};

std::vector<float> random_floats(size_t n) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  std::vector<float> out(n);
  for (float& x : out)
    x = normal(random);
  return out;
}

// A rate of what all threads did. This library multiplies by the iterations of all threads after adding up their
// counters; averaging over threads takes the surplus factor out again.
benchmark::Counter rate_of(double per_thread_iteration, int more_flags = 0) {
  const auto flags = static_cast<benchmark::Counter::Flags>(benchmark::Counter::kIsIterationInvariantRate |
                                                            benchmark::Counter::kAvgThreads | more_flags);
  return benchmark::Counter(per_thread_iteration, flags);
}

// What one thread and iteration read or compute, as a rate and as a share of the wall that was measured at the start.
void set_gb(benchmark::State& state, double bytes, size_t wall_bytes) {
  state.counters["GB/s"] = rate_of(bytes / 1e9);
  state.counters["of_read"] = rate_of(bytes / 1e9 / bench::read_gb_s(wall_bytes, state.threads()));
}

void set_gflops(benchmark::State& state, double flops, const AttentionKernels& kernels) {
  state.counters["GFLOP/s"] = rate_of(flops / 1e9);
  state.counters["of_peak"] = rate_of(flops / 1e9 / bench::peak_gflop_s(kernels.name, state.threads()));
}

struct Case {
  const AttentionKernels* kernels;
  CacheShape cache;
  int group;
  size_t wall_bytes = 0;  // decode: of the read wall it is held against
};

// Each thread takes its half of the (head, segment) items, as a decoding step does.
void decode(benchmark::State& state, const Case& c) {
  static std::unique_ptr<Cache> cache;
  if (state.thread_index() == 0 && (cache == nullptr || !(cache->shape() == c.cache))) {
    cache.reset();  // never two of them at a time
    cache = std::make_unique<Cache>(c.cache);
  }
  const int segments = (c.cache.n_rows + kSegmentRows - 1) / kSegmentRows;
  const int n_items = segments * c.cache.n_heads;
  const int n_mine = n_items / state.threads();
  const std::vector<float> q = random_floats(static_cast<size_t>(c.group * c.cache.head_dim));
  std::vector<float> partial(static_cast<size_t>(partial_floats(c.group, c.cache.head_dim)));
  for (auto _ : state) {
    for (int i = 0; i < n_mine; ++i) {
      const int item = state.thread_index() * n_mine + i;
      const KvHeadView rows = cache->head(item / segments);
      const int begin = item % segments * kSegmentRows;
      c.kernels->attend_segment(rows, begin, std::min(begin + kSegmentRows, rows.n_rows), q.data(), c.group, 0.125F,
                                partial.data());
    }
    benchmark::DoNotOptimize(partial.data());
  }
  const double rows = static_cast<double>(n_mine) * kSegmentRows;
  set_gb(state, rows * static_cast<double>(row_bytes(c.cache.head_dim, c.cache.type)), c.wall_bytes);
  state.counters["ns/row"] = rate_of(rows / 1e9, benchmark::Counter::kInvert);
}

struct QueryBlock {
  QueryBlock(const Case& c, int n_queries)
      : floats(random_floats(static_cast<size_t>(n_queries * c.group * c.cache.head_dim))),
        positions(static_cast<size_t>(n_queries)) {
    std::iota(positions.begin(), positions.end(), c.cache.n_rows - n_queries);
    queries = {.q = floats.data(),
               .row_stride = static_cast<long>(c.group) * c.cache.head_dim,
               .head_stride = c.cache.head_dim,
               .positions = positions.data(),
               .n_queries = n_queries,
               .group = c.group,
               .scale = 0.125F};
  }
  std::vector<float> floats;
  std::vector<int32_t> positions;
  TileQueries queries{};
};

// Pairs of (query, row) that the mask leaves when the queries are the last of the rows.
double visible_pairs(const Case& c, int n_queries) {
  return c.group * (static_cast<double>(n_queries) * c.cache.n_rows - n_queries * (n_queries - 1.0) / 2);
}

void tile(benchmark::State& state, const Case& c) {
  const Cache cache(c.cache);
  const QueryBlock block(c, kTileQueries);
  std::vector<float> y(block.floats.size());
  const auto floats = static_cast<size_t>(tile_scratch_floats(kTileQueries, c.group, c.cache.head_dim));
  const Arena scratch(floats * sizeof(float));
  const TileOutput out = {
      .y = y.data(), .row_stride = block.queries.row_stride, .head_stride = block.queries.head_stride};
  for (auto _ : state) {
    c.kernels->attend_tile(cache.head(0), block.queries, out, reinterpret_cast<float*>(scratch.data()));
    benchmark::DoNotOptimize(y.data());
  }
  set_gflops(state, 4 * c.cache.head_dim * visible_pairs(c, kTileQueries), *c.kernels);
}

constexpr int kWindow = 32;

void weights(benchmark::State& state, const Case& c) {
  const Cache cache(c.cache);
  const QueryBlock block(c, kWindow);
  std::vector<float> out(static_cast<size_t>(kWindow) * c.group * c.cache.n_rows);
  for (auto _ : state) {
    c.kernels->attention_weights(cache.head(0), block.queries, out.data());
    benchmark::DoNotOptimize(out.data());
  }
  set_gflops(state, 2 * c.cache.head_dim * visible_pairs(c, kWindow), *c.kernels);
}

void anchors(benchmark::State& state, const Case& c) {
  const Cache cache(c.cache);
  const int n = kWindow * c.group;
  const std::vector<float> a = random_floats(static_cast<size_t>(n) * static_cast<size_t>(c.cache.n_rows));
  const std::vector<float> y = random_floats(static_cast<size_t>(n * c.cache.head_dim));
  std::vector<float> score(static_cast<size_t>(c.cache.n_rows));
  for (auto _ : state) {
    c.kernels->anchor_scores(cache.head(0), a.data(), y.data(), n, score.data());
    benchmark::DoNotOptimize(score.data());
  }
  set_gflops(state, 2.0 * c.cache.head_dim * n * c.cache.n_rows, *c.kernels);
}

const char* name_of(RowType type) {
  const char* const names[] = {"f16", "bf16", "q8", "q4"};
  return names[static_cast<int>(type)];
}
std::string name_of(RowTypes type) {
  return type.k == type.v ? name_of(type.k) : std::string(name_of(type.k)) + "+" + name_of(type.v);
}

void add_decode(const AttentionKernels* kernels, RowType type, int mb, bool shuffled, int head_dim, int group) {
  const int n_heads = std::max(1, mb / 4);
  const int n_rows =
      mb * (1 << 20) / n_heads / static_cast<int>(row_bytes(head_dim, type)) / kSegmentRows * kSegmentRows;
  const std::string name = std::string("decode/") + kernels->name + "/" + name_of(type) + "/mb:" + std::to_string(mb) +
                           "/shuffled:" + (shuffled ? "1" : "0") + "/dim:" + std::to_string(head_dim) +
                           "/group:" + std::to_string(group);
  const Case c = {
      .kernels = kernels,
      .cache = {.type = type, .head_dim = head_dim, .n_heads = n_heads, .n_rows = n_rows, .shuffled = shuffled},
      .group = group,
      .wall_bytes = static_cast<size_t>(mb) << 20};
  benchmark::RegisterBenchmark(name.c_str(), decode, c)->ThreadRange(1, 2)->UseRealTime();
}

// The whole cache of a 30-layer model with three kv heads at a depth of 16,384: what a decoded token reads.
void add_depth(const AttentionKernels* kernels, RowTypes type) {
  const int n_rows = 16384;
  const CacheShape cache = {.type = type, .head_dim = 64, .n_heads = 90, .n_rows = n_rows};
  const std::string name = std::string("depth16k/") + kernels->name + "/" + name_of(type) + "/dim:64/group:3";
  const size_t bytes = row_bytes(cache.head_dim, type) * static_cast<size_t>(cache.n_heads) * n_rows;
  const Case c = {.kernels = kernels, .cache = cache, .group = 3, .wall_bytes = bytes >> 20 << 20};
  benchmark::RegisterBenchmark(name.c_str(), decode, c)->ThreadRange(1, 2)->UseRealTime();
}

void add_products(const AttentionKernels* kernels, RowType type, int n_rows, int head_dim) {
  const std::string name = std::string("/") + kernels->name + "/" + name_of(type) + "/rows:" + std::to_string(n_rows) +
                           "/dim:" + std::to_string(head_dim) + "/group:3";
  const Case c = {.kernels = kernels, .cache = {.type = type, .head_dim = head_dim, .n_rows = n_rows}, .group = 3};
  benchmark::RegisterBenchmark(("tile" + name).c_str(), tile, c)->ThreadRange(1, 2)->UseRealTime();
  benchmark::RegisterBenchmark(("weights" + name).c_str(), weights, c)->UseRealTime();
  benchmark::RegisterBenchmark(("anchors" + name).c_str(), anchors, c)->UseRealTime();
}

// Measured before anything else runs, on a quiet machine; the benchmarks find them remembered.
void print_walls() {
  for (const int n_threads : {1, 2}) {
    for (const size_t mb : {1U, 64U, 512U}) {
      std::fprintf(stderr, "wall: reading %zu MiB with %d threads %.1f GB/s\n", mb, n_threads,
                   bench::read_gb_s(mb << 20, n_threads));
    }
    for (const bench::Peak& peak : bench::peaks()) {
      std::fprintf(stderr, "wall: %s multiply-adds with %d threads %.1f GFLOP/s\n", std::string(peak.target).c_str(),
                   n_threads, bench::peak_gflop_s(peak.target, n_threads));
    }
  }
}

void add_all() {
  for (const char* name : {"avx2", "avx512", "avx512vnni", "avx512bf16"}) {
    const AttentionKernels* kernels = attention_kernels(name);
    if (kernels == nullptr)
      continue;
    for (const RowTypes type :
         {RowTypes(RowType::f16), RowTypes(RowType::q8), RowTypes(RowType::q8, RowType::q4), RowTypes(RowType::q4)}) {
      add_depth(kernels, type);
    }
    for (const RowType type : {RowType::q8, RowType::q4}) {
      add_decode(kernels, type, 1, false, 64, 3);
      add_products(kernels, type, 4096, 64);
    }
    for (const RowType type : {RowType::f16, RowType::bf16}) {
      add_decode(kernels, type, 1, false, 64, 3);
      add_decode(kernels, type, 64, false, 64, 3);
      add_decode(kernels, type, 64, true, 64, 3);
      add_decode(kernels, type, 512, false, 64, 3);
      add_decode(kernels, type, 512, true, 64, 3);
      for (const int n_rows : {512, 4096})
        add_products(kernels, type, n_rows, 64);
      add_products(kernels, type, 4096, 128);
    }
    for (const int group : {1, 4, 8})
      add_decode(kernels, RowType::f16, 64, false, 64, group);
    add_decode(kernels, RowType::f16, 64, false, 128, 4);
  }
}

}  // namespace
}  // namespace kedge

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv))
    return 1;
  kedge::print_walls();
  kedge::add_all();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
