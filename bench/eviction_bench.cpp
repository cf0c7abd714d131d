// Eviction's parts, one head or one layer at a time, beside the read bandwidth measured at the start.
//   score/SCORER/rows:N       one head of N rows, no threads. ns per row; scorers that read rows: GB/s, each row's K
//   and
//                             V counted once; window scorers: GFLOP/s of their queries x keys, of 32 queries of 3 heads
//   select/chunk:C/rows:N     the best half of N scores, a quarter of the rows protected. GB/s of scores and flags
//   decide/POLICY/rows:N      a layer of 3 heads, 2 threads: score, allocate, round, select. ns per row of all heads
//   compact/keep:P/rows:N     P % of the rows of 8 heads stay, scattered. GB/s of moved rows, read and written
#include <benchmark/benchmark.h>

#include <cstdio>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "eviction/policy.h"
#include "eviction/select.h"
#include "eviction/synthetic_heads.h"
#include "kv/store.h"
#include "tensor/compute.h"
#include "walls.h"

namespace kedge::eviction {
namespace {

constexpr int kHeadDim = 64;
constexpr int kGroup = 3;
constexpr int kWindow = 32;
constexpr double kRowBytes = 2.0 * kHeadDim * kRowTypeBytes;  // K and V of one row of one kv head
constexpr size_t kWallBytes = size_t{64} << 20;

benchmark::Counter per_second(double per_iteration) {
  return benchmark::Counter(per_iteration, benchmark::Counter::kIsIterationInvariantRate);
}

void set_row_rate(benchmark::State& state, double rows) {
  state.counters["ns/row"] =
      benchmark::Counter(rows / 1e9, static_cast<benchmark::Counter::Flags>(
                                         benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert));
}

void set_gb(benchmark::State& state, double bytes, int n_threads) {
  state.counters["GB/s"] = per_second(bytes / 1e9);
  state.counters["of_read"] = per_second(bytes / 1e9 / bench::read_gb_s(kWallBytes, n_threads));
}

const SyntheticHead& head_of(int n_rows) {
  static std::map<int, std::unique_ptr<SyntheticHead>> made;
  std::unique_ptr<SyntheticHead>& head = made[n_rows];
  if (head == nullptr)
    head = std::make_unique<SyntheticHead>(
        SyntheticSpec{.n_rows = n_rows, .head_dim = kHeadDim, .group = kGroup, .n_window = kWindow, .tail = kWindow});
  return *head;
}

Policy policy_of(const std::string& text) {
  Result<Policy> policy = parse_policy(text, {});
  check(policy.ok(), "a policy of the registry");
  return *std::move(policy);
}

bool reads_rows(const Scorer& scorer) { return scorer.needs().values || scorer.needs().window > 0; }

// The pool that a session computes on: kept awake between launches.
Executor& two_threads() {
  static Result<std::unique_ptr<tensor::Compute>> compute = tensor::Compute::create({.n_threads = 2});
  check(compute.ok(), "two threads");
  return **compute;
}

void score(benchmark::State& state, const std::string& name, int n_rows) {
  const Policy policy = policy_of(name);
  HeadInput in = head_of(n_rows).input();
  std::vector<uint8_t> is_protected(static_cast<size_t>(n_rows));
  mark_protected(in.rows, 4, n_rows / 8, is_protected);
  in.is_protected = is_protected;
  std::vector<float> out(static_cast<size_t>(n_rows));
  for (auto _ : state) {
    policy.scorer->score(in, out);
    benchmark::DoNotOptimize(out.data());
  }
  set_row_rate(state, n_rows);
  if (reads_rows(*policy.scorer))
    set_gb(state, n_rows * kRowBytes, 1);
  if (policy.scorer->needs().window > 0) {
    const double flops = 2.0 * kHeadDim * kGroup * kWindow * n_rows / 1e9;
    state.counters["GFLOP/s"] = per_second(flops);
    state.counters["of_peak"] = per_second(flops / bench::peak_gflop_s(in.kernels->name, 1));
  }
}

void select_rows(benchmark::State& state, int chunk, int n_rows) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform;
  std::vector<float> scores(static_cast<size_t>(n_rows));
  for (float& s : scores)
    s = uniform(random);
  std::vector<uint8_t> is_protected(scores.size());
  mark_protected(head_of(n_rows).view, 4, n_rows / 4, is_protected);
  for (auto _ : state)
    benchmark::DoNotOptimize(select(scores, is_protected, n_rows / 2, chunk).data());
  set_row_rate(state, n_rows);
  set_gb(state, n_rows * (sizeof(float) + sizeof(uint8_t)), 1);
}

void decide(benchmark::State& state, const std::string& name, int n_rows) {
  const Policy policy = policy_of(name);
  LayerInput in{.n_sinks = 4, .n_recent = n_rows / 8};
  constexpr int kHeads = 3;
  for (int h = 0; h < kHeads; ++h) {
    in.heads.push_back(head_of(n_rows).input());
    in.heads.back().head = h;
  }
  in.blocks_total = int64_t{kHeads} * n_rows / kBlockRows / 4;
  for (auto _ : state)
    benchmark::DoNotOptimize(decide_layer(policy, in, two_threads()).keep.data());
  set_row_rate(state, double{kHeads} * n_rows);
  if (reads_rows(*policy.scorer))
    set_gb(state, kHeads * n_rows * kRowBytes, 2);
}

// A store of one layer, refilled before every round; only compact() is timed.
void compact(benchmark::State& state, int keep_percent, int n_rows) {
  constexpr int kHeads = 8;
  const kv::StoreShape shape{.n_layers = 1, .n_kv_heads = kHeads, .head_dim = kHeadDim};
  auto store = kv::Store::create(shape, kv::bytes_for_rows(shape, n_rows, kHeads));
  check(store.ok(), "memory for the store");
  const std::vector<float> rows(static_cast<size_t>(n_rows) * kHeadDim, 0.5F);
  std::vector<int32_t> positions(static_cast<size_t>(n_rows));
  std::iota(positions.begin(), positions.end(), 0);
  std::mt19937 random(3);
  std::vector<int32_t> kept;
  for (const int32_t row : positions) {
    if (static_cast<int>(random() % 100) < keep_percent)
      kept.push_back(row);
  }
  kv::KeepPlan plan;
  for (int h = 0; h < kHeads; ++h)
    plan.heads.push_back({.layer = 0, .head = h, .rows = kept});
  for (auto _ : state) {
    const kv::SequenceId sequence = (*store)->create_sequence();
    check((*store)->reserve(sequence, 0, 1, n_rows).ok(), "room for the rows");
    for (int h = 0; h < kHeads; ++h)
      (*store)->append(sequence, 0, h, {rows.data(), rows.data(), kHeadDim, kHeadDim, positions});
    const Stopwatch watch;
    check((*store)->compact(sequence, plan, two_threads()).ok(), "a plan that is right");
    state.SetIterationTime(watch.seconds());
    (*store)->drop_sequence(sequence);
  }
  const double moved = double{kHeads} * static_cast<double>(kept.size());
  set_row_rate(state, moved);
  set_gb(state, 2 * moved * kRowBytes, 2);
}

void add_all() {
  for (const int n_rows : {1024, 8192}) {
    const std::string rows = "/rows:" + std::to_string(n_rows);
    for (const Method& method : scorers()) {
      if (!method.evicts)
        continue;
      const std::string& name = method.info.name;
      benchmark::RegisterBenchmark(("score/" + name + rows).c_str(), score, name, n_rows);
      benchmark::RegisterBenchmark(("decide/" + name + rows).c_str(), decide, name, n_rows)->UseRealTime();
    }
    for (const int chunk : {1, 4}) {
      const std::string name = "select/chunk:" + std::to_string(chunk) + rows;
      benchmark::RegisterBenchmark(name.c_str(), select_rows, chunk, n_rows);
    }
    for (const int keep : {10, 50, 90}) {
      const std::string name = "compact/keep:" + std::to_string(keep) + rows;
      benchmark::RegisterBenchmark(name.c_str(), compact, keep, n_rows)->UseManualTime();
    }
  }
}

void print_walls() {
  const std::string target = best_attention_kernels().name;
  for (const int n_threads : {1, 2}) {
    std::fprintf(stderr, "wall: reading 64 MiB with %d threads %.1f GB/s, %s multiply-adds %.1f GFLOP/s\n", n_threads,
                 bench::read_gb_s(kWallBytes, n_threads), target.c_str(), bench::peak_gflop_s(target, n_threads));
  }
}

}  // namespace
}  // namespace kedge::eviction

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv))
    return 1;
  kedge::eviction::print_walls();
  kedge::eviction::add_all();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
