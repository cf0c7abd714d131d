#include "tensor/compute.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <cmath>
#include <random>
#include <thread>

#include "base/thread_order.h"
#include "tensor/test_gguf.h"

namespace kedge::tensor {
namespace {

using ::testing::HasSubstr;

constexpr int kIn = 64;  // two blocks of a 32-block type
constexpr int kOut = 48;

std::vector<float> random_values(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  std::vector<float> values(n);
  for (float& v : values)
    v = uniform(random);
  return values;
}

// A Compute with the weights of a small file; `repack` as the product of weights reads them.
struct Fixture {
  explicit Fixture(int n_threads, PromptWeights mode = PromptWeights::native, bool repack = true,
                   WeightMemory memory = WeightMemory::automatic) {
    TestGguf gguf;
    gguf.tensor("f32.weight", GGML_TYPE_F32, {kIn, kOut}, random_values(kIn * kOut, 1));
    gguf.tensor("q4_0.weight", GGML_TYPE_Q4_0, {kIn, kOut}, random_values(kIn * kOut, 2));
    gguf.tensor("q4_1.weight", GGML_TYPE_Q4_1, {kIn, kOut}, random_values(kIn * kOut, 3));
    gguf.tensor("q8_0.weight", GGML_TYPE_Q8_0, {kIn, kOut}, random_values(kIn * kOut, 4));
    gguf.tensor("f16.weight", GGML_TYPE_F16, {kIn, kOut}, random_values(kIn * kOut, 5));
    gguf.tensor("bf16.weight", GGML_TYPE_BF16, {kIn, kOut}, random_values(kIn * kOut, 6));
    gguf.tensor("norm.weight", GGML_TYPE_F32, {kIn}, random_values(kIn, 7));
    gguf.tensor("factors", GGML_TYPE_F32, {8}, {1, 1, 1.5F, 2, 4, 8, 8, 8});
    temp = std::make_unique<TempFile>(gguf.bytes());
    file = *GgufFile::open(temp->path());
    compute = *Compute::create({.n_threads = n_threads, .pin = false});
    weights = *Weights::create(*compute, *file, {.prompt_weights = mode, .memory = memory, .repack = repack});
  }
  std::unique_ptr<TempFile> temp;
  std::unique_ptr<GgufFile> file;
  std::unique_ptr<Compute> compute;
  std::unique_ptr<Weights> weights;

  // [rows, kOut]
  std::vector<float> product(const std::string& name, const std::vector<float>& x) {
    Graph graph(*compute, *weights);
    Tensor in = graph.input_f32(static_cast<int64_t>(x.size()) / kIn, kIn);
    Tensor out = graph.matmul(weights->find(name), in);
    graph.output(out);
    EXPECT_TRUE(graph.finish().ok());
    graph.set(in, std::span<const float>(x));
    graph.run();
    const auto y = graph.read(out);
    return {y.begin(), y.end()};
  }
  // The weight's values after whatever its type lost, f32 [kOut, kIn].
  std::vector<float> dequantised(const std::string& name) {
    Graph graph(*compute, *weights);
    Tensor ids = graph.input_i32(kOut);
    Tensor rows = graph.get_rows(weights->find(name), ids);
    graph.output(rows);
    EXPECT_TRUE(graph.finish().ok());
    std::vector<int32_t> all(kOut);
    for (int i = 0; i < kOut; ++i)
      all[static_cast<size_t>(i)] = i;
    graph.set(ids, std::span<const int32_t>(all));
    graph.run();
    const auto y = graph.read(rows);
    return {y.begin(), y.end()};
  }
};

// Largest |ours - plain| over the root mean square of the plain product.
double product_error(const std::vector<float>& y, const std::vector<float>& w, const std::vector<float>& x) {
  double worst = 0;
  double energy = 0;
  for (size_t r = 0; r < x.size() / kIn; ++r) {
    for (size_t o = 0; o < kOut; ++o) {
      double sum = 0;
      for (size_t i = 0; i < kIn; ++i)
        sum += static_cast<double>(w[o * kIn + i]) * static_cast<double>(x[r * kIn + i]);
      worst = std::max(worst, std::abs(sum - static_cast<double>(y[r * kOut + o])));
      energy += sum * sum;
    }
  }
  return worst / std::sqrt(energy / static_cast<double>(y.size()));
}

const std::vector<std::string> kMatrices = {"f32.weight",  "q4_0.weight", "q4_1.weight",
                                            "q8_0.weight", "f16.weight",  "bf16.weight"};

TEST(Graph, MatmulEqualsPlainLoopsInEveryMode) {
  for (const PromptWeights mode : {PromptWeights::native, PromptWeights::f32, PromptWeights::bf16}) {
    Fixture f(2, mode);
    for (const int n : {1, 5, kMinPromptRows - 1, kMinPromptRows, 70}) {
      const std::vector<float> x = random_values(static_cast<size_t>(n * kIn), 100);
      for (const std::string& name : kMatrices) {
        const double error = product_error(f.product(name, x), f.dequantised(name), x);
        const bool is_prompt = mode == PromptWeights::f32 && n >= kMinPromptRows;
        const bool rounded = name[0] == 'q';  // quantised weights: activations are rounded as ggml rounds them
        const bool exact = name == "f32.weight" || (is_prompt && !rounded);
        EXPECT_LT(error, exact ? 1e-5 : 3e-2) << name << " mode " << static_cast<int>(mode) << " n " << n;
      }
    }
  }
}

TEST(Graph, DequantisedWeightsGiveTheIntegerProduct) {
  Fixture native(2, PromptWeights::native);
  Fixture f32(2, PromptWeights::f32);
  const std::vector<float> x = random_values(size_t{70} * kIn, 100);
  for (const std::string name : {"q4_0.weight", "q4_1.weight", "q8_0.weight"}) {
    const std::vector<float> a = native.product(name, x);
    const std::vector<float> b = f32.product(name, x);
    double difference = 0;
    double energy = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      difference += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
      energy += std::pow(static_cast<double>(a[i]), 2);
    }
    EXPECT_LT(std::sqrt(difference / energy), 1e-3) << name;
  }
}

TEST(Graph, PromptRowsChooseTheForm) {
  // Quantised activations round: the native product of a q8_0 weight differs from the f32 one, which shows which was
  // taken.
  Fixture native(1, PromptWeights::native);
  Fixture f32(1, PromptWeights::f32);
  for (const int n : {kMinPromptRows - 1, kMinPromptRows}) {
    const std::vector<float> x = random_values(static_cast<size_t>(n * kIn), 3);
    const bool same = native.product("q8_0.weight", x) == f32.product("q8_0.weight", x);
    EXPECT_EQ(same, n < kMinPromptRows) << n;
  }
}

TEST(Graph, ThreadsDoNotChangeABit) {
  for (const PromptWeights mode : {PromptWeights::native, PromptWeights::f32, PromptWeights::bf16}) {
    Fixture one(1, mode);
    Fixture two(2, mode);
    for (const int n : {1, 40}) {
      const std::vector<float> x = random_values(static_cast<size_t>(n * kIn), 5);
      for (const std::string& name : kMatrices) {
        const std::vector<float> y = one.product(name, x);
        EXPECT_EQ(y, two.product(name, x)) << name;
      }
    }
  }
}

// One node for few rows, three for many: the same sums as ggml's own nodes either way, and on any number of threads.
TEST(Graph, AffineIsMatmulAddAndGelu) {
  using Activation = Graph::Activation;
  for (const int threads : {1, 2, 3}) {
    Fixture f(threads, PromptWeights::native);
    for (const int n : {1, 5, kMinPromptRows}) {
      const std::vector<float> x = random_values(static_cast<size_t>(n * kIn), 9);
      const std::vector<float> bias = random_values(kOut, 10);
      for (const std::string name : {"f32.weight", "q8_0.weight", "f16.weight"}) {
        for (const Activation activation : {Activation::none, Activation::gelu}) {
          Graph graph(*f.compute, *f.weights);
          Tensor in = graph.input_f32(n, kIn);
          Tensor b = graph.input_f32(1, kOut);
          Tensor out = graph.affine(f.weights->find(name), b, in, activation);
          Tensor sum = graph.add(graph.matmul(f.weights->find(name), in), b);
          Tensor expected = activation == Activation::gelu ? graph.gelu(sum) : sum;
          graph.output(out);
          graph.output(expected);
          ASSERT_TRUE(graph.finish().ok());
          graph.set(in, std::span<const float>(x));
          graph.set(b, std::span<const float>(bias));
          graph.run();
          const std::span<const float> found = graph.read(out);
          const std::span<const float> wanted = graph.read(expected);
          for (size_t i = 0; i < wanted.size(); ++i)
            ASSERT_NEAR(found[i], wanted[i], 1e-5) << name << ", " << n << " rows, " << threads << " threads, " << i;
        }
      }
    }
  }
}

TEST(Graph, RmsNormAddMulScaleSwiglu) {
  Fixture f(2);
  constexpr int64_t n = 3;
  const std::vector<float> x = random_values(n * kIn, 8);
  const std::vector<float> u = random_values(n * kIn, 9);
  const std::vector<float> norm = random_values(kIn, 7);
  Graph graph(*f.compute, *f.weights);
  Tensor a = graph.input_f32(n, kIn);
  Tensor b = graph.input_f32(n, kIn);
  Tensor plain = graph.rms_norm(a, nullptr, 1e-5F);
  Tensor weighted = graph.rms_norm(a, f.weights->find("norm.weight"), 1e-5F);
  Tensor sum = graph.add(a, f.weights->find("norm.weight"));  // broadcast over rows
  Tensor scaled = graph.scale(graph.mul(a, b), 0.5F);
  Tensor gated = graph.swiglu(a, b);
  Tensor slice = graph.row_slice(a, 1, 2);
  Tensor slice_sum = graph.add(slice, slice);
  for (Tensor t : {plain, weighted, sum, scaled, gated, slice_sum})
    graph.output(t);
  ASSERT_TRUE(graph.finish().ok());
  graph.set(a, std::span<const float>(x));
  graph.set(b, std::span<const float>(u));
  graph.run();
  for (size_t r = 0; r < n; ++r) {
    double energy = 0;
    for (size_t i = 0; i < kIn; ++i)
      energy += static_cast<double>(x[r * kIn + i]) * static_cast<double>(x[r * kIn + i]);
    const double inverse = 1.0 / std::sqrt(energy / kIn + 1e-5);
    for (size_t i = 0; i < kIn; ++i) {
      const size_t at = r * kIn + i;
      const double value = static_cast<double>(x[at]);
      ASSERT_NEAR(graph.read(plain)[at], value * inverse, 1e-5);
      ASSERT_NEAR(graph.read(weighted)[at], value * inverse * static_cast<double>(norm[i]), 1e-5);
      ASSERT_EQ(graph.read(sum)[at], x[at] + norm[i]);
      ASSERT_EQ(graph.read(scaled)[at], x[at] * u[at] * 0.5F);
      ASSERT_NEAR(graph.read(gated)[at], value / (1 + std::exp(-value)) * static_cast<double>(u[at]), 1e-5);
      if (r > 0) {
        ASSERT_EQ(graph.read(slice_sum)[at - kIn], 2 * x[at]);
      }
    }
  }
}

// RoPE by its formula, with YaRN's mixing of scaled and unscaled angles.
std::vector<double> plain_rope(const std::vector<float>& x, int n_heads, int d, const std::vector<int32_t>& positions,
                               const RopeParams& p, const std::vector<float>& factors) {
  std::vector<double> y(x.size());
  const auto correction = [&](double rotations) {
    return p.n_dims * std::log(p.n_ctx_orig / (rotations * 2 * M_PI)) /
           (2 * std::log(static_cast<double>(p.freq_base)));
  };
  for (size_t t = 0; t < positions.size(); ++t) {
    for (int h = 0; h < n_heads; ++h) {
      const size_t base = (t * static_cast<size_t>(n_heads) + static_cast<size_t>(h)) * static_cast<size_t>(d);
      for (int i = 0; i < p.n_dims / 2; ++i) {
        const double raw = positions[t] * std::pow(static_cast<double>(p.freq_base), -2.0 * i / p.n_dims) /
                           (factors.empty() ? 1.0 : static_cast<double>(factors[static_cast<size_t>(i)]));
        double angle = raw * static_cast<double>(p.freq_scale);
        double scale = static_cast<double>(p.attn_factor);
        if (p.ext_factor != 0) {
          const double low = std::max(0.0, std::floor(correction(static_cast<double>(p.beta_fast))));
          const double high = std::min(p.n_dims - 1.0, std::ceil(correction(static_cast<double>(p.beta_slow))));
          const double ramp = 1 - std::clamp((i - low) / std::max(0.001, high - low), 0.0, 1.0);
          const double mix = ramp * static_cast<double>(p.ext_factor);
          angle = angle * (1 - mix) + raw * mix;
          scale *= 1 + 0.1 * std::log(1 / static_cast<double>(p.freq_scale));
        }
        const size_t first = base + static_cast<size_t>(p.neox ? i : 2 * i);
        const size_t second = base + static_cast<size_t>(p.neox ? i + p.n_dims / 2 : 2 * i + 1);
        const double a = static_cast<double>(x[first]);
        const double b = static_cast<double>(x[second]);
        y[first] = (a * std::cos(angle) - b * std::sin(angle)) * scale;
        y[second] = (a * std::sin(angle) + b * std::cos(angle)) * scale;
      }
    }
  }
  return y;
}

TEST(Graph, RopeFollowsItsFormula) {
  Fixture f(2);
  constexpr int n_heads = 4;
  constexpr int d = 16;
  const std::vector<int32_t> positions = {0, 1, 7, 250, 1001};
  const std::vector<float> x = random_values(positions.size() * n_heads * d, 10);
  const std::vector<float> factors = {1, 1, 1.5F, 2, 4, 8, 8, 8};
  std::vector<RopeParams> cases;
  cases.push_back({.n_dims = d, .n_ctx_orig = 2048});
  cases.push_back({.n_dims = d, .neox = true, .n_ctx_orig = 2048});
  cases.push_back({.n_dims = d, .freq_base = 500000.0F, .freq_scale = 0.25F, .n_ctx_orig = 2048});
  cases.push_back({.n_dims = d, .freq_scale = 0.25F, .ext_factor = 1.0F, .attn_factor = 0.9F, .n_ctx_orig = 64});
  cases.push_back({.n_dims = d, .n_ctx_orig = 2048, .freq_factors = f.weights->find("factors")});
  for (size_t c = 0; c < cases.size(); ++c) {
    Graph graph(*f.compute, *f.weights);
    Tensor in = graph.input_f32(static_cast<int64_t>(positions.size()), n_heads * d);
    Tensor pos = graph.input_i32(static_cast<int64_t>(positions.size()));
    Tensor out = graph.rope(in, n_heads, d, pos, cases[c]);
    graph.output(out);
    ASSERT_TRUE(graph.finish().ok());
    graph.set(in, std::span<const float>(x));
    graph.set(pos, std::span<const int32_t>(positions));
    graph.run();
    const std::vector<double> expected = plain_rope(x, n_heads, d, positions, cases[c],
                                                    cases[c].freq_factors == nullptr ? std::vector<float>{} : factors);
    for (size_t i = 0; i < x.size(); ++i)
      ASSERT_NEAR(graph.read(out)[i], expected[i], 5e-4) << "case " << c << " element " << i;
  }
}

struct Calls {
  std::atomic<int> n{0};
  std::atomic<int> n_threads{0};
};

void add_inputs(ggml_tensor* dst, int ith, int nth, void* user) {
  const BetweenBarriers order;
  auto& calls = *static_cast<Calls*>(user);
  calls.n++;
  calls.n_threads = nth;
  const Share rows = share_of(n_rows(dst), ith, nth);
  const int64_t cols = n_cols(dst);
  for (long i = rows.begin * cols; i < rows.end * cols; ++i)
    f32_data(dst)[i] = f32_data(custom_input(dst, 0))[i] + f32_data(custom_input(dst, 1))[i];
}

TEST(Graph, CustomNodeRunsOnEveryThreadAndReplays) {
  Fixture f(2);
  Calls calls;
  Graph graph(*f.compute, *f.weights);
  Tensor a = graph.input_f32(5, 7);
  Tensor b = graph.input_f32(5, 7);
  const Tensor inputs[] = {a, b};
  Tensor sum = graph.custom(inputs, 5, 7, add_inputs, &calls);
  Tensor twice = graph.scale(sum, 2.0F);
  graph.output(twice);
  ASSERT_TRUE(graph.finish().ok());
  const std::vector<float> fixed = random_values(35, 1);
  graph.set(b, std::span<const float>(fixed));  // once: inputs keep their values over runs
  for (uint32_t round = 0; round < 5; ++round) {
    const std::vector<float> x = random_values(35, 20 + round);
    graph.set(a, std::span<const float>(x));
    graph.run();
    for (size_t i = 0; i < 35; ++i)
      ASSERT_EQ(graph.read(twice)[i], 2 * (x[i] + fixed[i])) << round;
  }
  EXPECT_EQ(calls.n, 10);
  EXPECT_EQ(calls.n_threads, 2);
}

TEST(Graph, DequantisedScratchIsTheLargestNotTheSum) {
  Fixture f(1, PromptWeights::f32);
  const auto scratch = [&f](int n_products) {
    Graph graph(*f.compute, *f.weights);
    Tensor in = graph.input_f32(kMinPromptRows, kIn);
    Tensor total = nullptr;
    for (int i = 0; i < n_products; ++i) {
      Tensor y = graph.matmul(f.weights->find(kMatrices[1 + static_cast<size_t>(i % 3)]), in);
      total = total == nullptr ? y : graph.add(total, y);
    }
    graph.output(total);
    EXPECT_TRUE(graph.finish().ok());
    const int64_t bytes = graph.scratch_bytes();
    f.compute->release_scratch();
    return bytes;
  };
  constexpr int64_t kWeightBytes = int64_t{kIn} * kOut * 4;
  const int64_t two = scratch(2);
  EXPECT_GE(two, kWeightBytes);
  f.compute->release_scratch();
  EXPECT_LT(scratch(12), two + kWeightBytes);
}

TEST(Graph, ScratchIsReusedByTheNextGraph) {
  Fixture f(1);
  const float* first = nullptr;
  {
    Graph graph(*f.compute, *f.weights);
    Tensor in = graph.input_f32(100, 100);
    ASSERT_TRUE(graph.finish().ok());
    first = graph.data(in).data();
  }
  Graph graph(*f.compute, *f.weights);
  Tensor in = graph.input_f32(50, 100);
  ASSERT_TRUE(graph.finish().ok());
  EXPECT_EQ(graph.data(in).data(), first);
}

TEST(Weights, RepackedFormIsFoundAndMappedStaysReadable) {
  Fixture f(2, PromptWeights::native, true);
  Tensor mapped = f.weights->find("q4_0.weight");
  ASSERT_NE(mapped, nullptr);
  EXPECT_EQ(f.weights->find("absent"), nullptr);
  EXPECT_EQ(f.weights->repacked(f.weights->find("f32.weight")), f.weights->find("f32.weight"));
  Fixture plain(2, PromptWeights::native, false);
  EXPECT_EQ(plain.weights->repacked_bytes(), 0);
  EXPECT_EQ(plain.weights->repacked(plain.weights->find("q4_0.weight")), plain.weights->find("q4_0.weight"));
  EXPECT_EQ(f.weights->repacked(mapped) != mapped, f.weights->repacked_bytes() > 0);
  EXPECT_EQ(f.dequantised("q4_0.weight"), plain.dequantised("q4_0.weight"));
}

TEST(Weights, CopiedAndMappedGiveTheSameProducts) {
  Fixture mapped(1, PromptWeights::native, true, WeightMemory::mapped);
  Fixture copied(1, PromptWeights::native, true, WeightMemory::copied);
  EXPECT_EQ(mapped.weights->copied_bytes(), 0);
  EXPECT_GT(copied.weights->copied_bytes(), 0);
  const std::vector<float> x = random_values(3 * kIn, 11);
  for (const char* name : {"f32.weight", "q4_0.weight", "q4_1.weight", "q8_0.weight", "f16.weight", "bf16.weight"}) {
    EXPECT_EQ(mapped.product(name, x), copied.product(name, x)) << name;
    EXPECT_EQ(mapped.dequantised(name), copied.dequantised(name)) << name << ", after its pages were released";
  }
}

TEST(Weights, AutomaticIsResolved) {
  Fixture f(1, PromptWeights::automatic);
  EXPECT_THAT(f.weights->prompt_weights(), ::testing::AnyOf(PromptWeights::f32, PromptWeights::bf16));
}

TEST(Compute, RunCallsEveryThreadOnce) {
  for (const int n : {1, 2, 4}) {
    const auto compute = *Compute::create({.n_threads = n, .pin = false});
    ASSERT_EQ(compute->n_threads(), n);
    for (int round = 0; round < 50; ++round) {
      std::vector<std::atomic<int>> calls(static_cast<size_t>(n));
      compute->run([&](int ith, int nth) {
        ASSERT_EQ(nth, n);
        calls[static_cast<size_t>(ith)]++;
      });
      for (const auto& c : calls)
        ASSERT_EQ(c, 1);
    }
  }
}

int n_cpus_of_this_thread() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof(set), &set);
  return CPU_COUNT(&set);
}

TEST(Compute, PinsEachThreadToACpuOfItsOwnAndLetsGo) {
  // In a thread of its own: the pinning is the calling thread's.
  std::thread([] {
    const int before = n_cpus_of_this_thread();
    {
      const auto compute = *Compute::create({.n_threads = 0, .pin = true});
      ASSERT_EQ(compute->n_threads(), before);
      std::vector<int> cpus(static_cast<size_t>(before), -1);
      std::vector<int> counts(static_cast<size_t>(before), 0);
      compute->run([&](int ith, int) {
        cpus[static_cast<size_t>(ith)] = sched_getcpu();
        counts[static_cast<size_t>(ith)] = n_cpus_of_this_thread();
      });
      EXPECT_THAT(counts, ::testing::Each(1));
      std::sort(cpus.begin(), cpus.end());
      EXPECT_EQ(std::adjacent_find(cpus.begin(), cpus.end()), cpus.end());
      EXPECT_EQ(n_cpus_of_this_thread(), before) << "pinned only while it runs";
      const auto second = *Compute::create({.n_threads = 0, .pin = true});
      EXPECT_EQ(second->n_threads(), before);
    }
    EXPECT_EQ(n_cpus_of_this_thread(), before);
  }).join();
}

TEST(Compute, RefusesThreadCounts) {
  EXPECT_THAT(Compute::create({.n_threads = -1}).error().message, HasSubstr("threads: found -1"));
  EXPECT_EQ(Compute::create({.n_threads = 100000}).error().code, ErrorCode::usage);
}

}  // namespace
}  // namespace kedge::tensor
