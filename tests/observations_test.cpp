// What a session records for scorers, against the plainest attention over the same tokens.
#include "session/observations.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <numeric>
#include <random>

#include "door.h"
#include "model/naive_attention.h"
#include "session/echo.h"
#include "session/reconstruct.h"
#include "session/rotation.h"
#include "session/timeline.h"
#include "session/token_kind.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace kedge::session {
namespace {

using test::TempDir;

template <typename T>
T take(Result<T> result) {
  if (!result.ok()) {
    std::fprintf(stderr, "unexpected error: %s\n", result.error().message.c_str());
    std::abort();
  }
  return std::move(result).value();
}

struct Loaded {
  std::unique_ptr<tensor::Compute> compute;
  std::unique_ptr<model::Model> net;
  std::unique_ptr<model::Tokenizer> tokenizer;
  Engine engine() const { return {compute.get(), net.get(), &best_attention_kernels(), tokenizer.get()}; }
};
Loaded load(const std::string& path, int n_threads) {
  Loaded out;
  out.compute = take(tensor::Compute::create({.n_threads = n_threads}));
  out.net = take(model::load_model(*out.compute, path, {}));
  out.tokenizer = take(model::Tokenizer::open(path));
  return out;
}

// q and k of every layer while a NaiveAttention attends. q f32 [n, n_heads * head_dim], k f32 [n, n_kv_heads *
// head_dim].
class Recorder final : public attention::AttentionPort {
 public:
  explicit Recorder(const model::HyperParams& hyper)
      : layers(static_cast<size_t>(hyper.n_layers)), naive_(hyper), hyper_(hyper) {}
  struct Layer {
    std::vector<float> q, k;
  };
  std::vector<Layer> layers;
  const model::HyperParams& hyper() const { return hyper_; }

  tensor::Tensor attend(tensor::Graph& graph, int layer, tensor::Tensor q, tensor::Tensor k, tensor::Tensor v,
                        const attention::RowOrigin& origin) override {
    const tensor::Tensor inputs[] = {q, k};
    tensor::Tensor same = graph.custom(inputs, tensor::n_rows(q), tensor::n_cols(q), record, &layers[layer]);
    return naive_.attend(graph, layer, same, k, v, origin);
  }
  void run(const Loaded& loaded, std::span<const Token> tokens, std::span<const int32_t> positions) {
    tensor::Graph graph(*loaded.compute, loaded.net->weights());
    tensor::Tensor ids = graph.input_i32(static_cast<int64_t>(tokens.size()));
    tensor::Tensor where = graph.input_i32(static_cast<int64_t>(tokens.size()));
    tensor::Tensor x = loaded.net->embed(graph, ids);
    for (int layer = 0; layer < hyper_.n_layers; ++layer)
      x = loaded.net->layer(graph, layer, x, where, 0, *this);
    graph.output(x);
    test::must(graph.finish());
    graph.set(ids, tokens);
    graph.set(where, positions);
    graph.run();
  }

  // Softmax weight of query t of query head h on row i, over the rows up to t for which counts(row) is true. f64 [n].
  template <typename Counts>
  std::vector<double> weights(int layer, int h, int t, const Counts& counts) const {
    const int d = hyper_.head_dim;
    const float* q = &layers[layer].q[(static_cast<size_t>(t) * hyper_.n_heads + h) * d];
    std::vector<double> a(static_cast<size_t>(t) + 1, 0.0);
    double sum = 0;
    for (int i = 0; i <= t; ++i) {
      const float* k = &layers[layer].k[(static_cast<size_t>(i) * hyper_.n_kv_heads + h / hyper_.group()) * d];
      double dot = 0;
      for (int j = 0; j < d; ++j)
        dot += double{q[j]} * k[j];
      if (counts(i))
        sum += a[i] = std::exp(dot * hyper_.attention_scale);
    }
    for (double& one : a)
      one /= sum;
    return a;
  }

 private:
  static void record(ggml_tensor* dst, int ith, int /*nth*/, void* user) {
    if (ith != 0)
      return;
    auto& layer = *static_cast<Layer*>(user);
    const tensor::Tensor q = tensor::custom_input(dst, 0);
    const tensor::Tensor k = tensor::custom_input(dst, 1);
    const auto n_q = static_cast<size_t>(tensor::n_rows(q) * tensor::n_cols(q));
    const auto n_k = static_cast<size_t>(tensor::n_rows(k) * tensor::n_cols(k));
    layer.q.assign(tensor::f32_data(q), tensor::f32_data(q) + n_q);
    layer.k.assign(tensor::f32_data(k), tensor::f32_data(k) + n_k);
    std::copy_n(layer.q.begin(), n_q, tensor::f32_data(dst));
  }
  model::NaiveAttention naive_;
  model::HyperParams hyper_;
};

std::vector<int32_t> counting(size_t n, int32_t first = 0) {
  std::vector<int32_t> out(n);
  std::iota(out.begin(), out.end(), first);
  return out;
}

class Observed : public testing::Test {
 protected:
  void SetUp() override {
    write(test::TinyOptions{.n_layers = 3, .n_heads = 4, .n_kv_heads = 2, .qk_gain = 1.4F, .seed = 3}, "tiny.gguf");
    one_ = load(dir_.file("tiny.gguf"), 1);
  }
  void write(const test::TinyOptions& options, const char* name) {
    test::write_tiny_model(test::make_tiny_weights(options), dir_.file(name));
  }
  std::unique_ptr<Timeline> timeline(const Loaded& on, const std::string& policy, const std::string& budget,
                                     int64_t prompt, int n_ubatch = 512) const {
    SessionOptions options = test::session_options({.budget = budget, .policy = policy, .prompt = prompt});
    options.n_ubatch = n_ubatch;
    options.n_ctx = 4000;
    return take(Timeline::create(on.engine(), options));
  }
  int n_layers() const { return one_.net->hyper().n_layers; }

  TempDir dir_;
  Loaded one_;
};

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

TEST_F(Observed, AttentionSumsAreThoseOfTheWholeMatrix) {
  const std::vector<Token> tokens = test::random_tokens(200, 1);
  Recorder oracle(one_.net->hyper());
  oracle.run(one_, tokens, counting(200));
  const auto session = timeline(one_, "h2o", "", 200);
  test::must(session->prefill(std::span(tokens).first(150), {}));
  for (size_t i = 150; i < tokens.size(); ++i)
    test::must(session->decode(tokens[i]));
  // The last eight queries wait in the ring: 192 is the last multiple of 64.
  const int n_queries = 192;
  for (int layer = 0; layer < n_layers(); ++layer) {
    for (int head = 0; head < 2; ++head) {
      std::vector<double> expected(200, 0.0);
      for (int t = 0; t < n_queries; ++t) {
        for (int h = 2 * head; h < 2 * head + 2; ++h) {
          const std::vector<double> a = oracle.weights(layer, h, t, [](int) { return true; });
          for (size_t i = 0; i < a.size(); ++i)
            expected[i] += a[i] / 2;
        }
      }
      const std::vector<float> sums = session->observations().attention_sum(layer, head);
      ASSERT_EQ(sums.size(), expected.size());
      double total = 0;
      for (size_t i = 0; i < sums.size(); ++i) {
        EXPECT_NEAR(sums[i], expected[i], 2e-3 + 5e-3 * expected[i]) << layer << " " << head << " row " << i;
        total += sums[i];
      }
      EXPECT_NEAR(total, n_queries, 1e-3) << "each query's weights are 1 in all";
    }
  }
}

TEST_F(Observed, NeitherThreadsNorGraphSizesChangeTheSums) {
  const Loaded two = load(dir_.file("tiny.gguf"), 2);
  const std::vector<Token> tokens = test::random_tokens(700, 2);
  const auto a = timeline(one_, "h2o", "", 700);
  const auto b = timeline(two, "h2o", "", 700);
  const auto c = timeline(one_, "h2o", "", 700, 64);
  for (const auto* session : {&a, &b, &c})
    test::must((*session)->prefill(tokens, {}));
  for (int layer = 0; layer < n_layers(); ++layer) {
    for (int head = 0; head < 2; ++head) {
      const std::vector<float> sums = a->observations().attention_sum(layer, head);
      EXPECT_TRUE(same_bits(sums, b->observations().attention_sum(layer, head))) << "two threads, layer " << layer;
      EXPECT_TRUE(same_bits(sums, c->observations().attention_sum(layer, head))) << "graphs of 64, layer " << layer;
    }
  }
}

TEST_F(Observed, DecodedTokensAddUpAsReadOnesDo) {
  const std::vector<Token> tokens = test::random_tokens(320, 3);
  const auto read = timeline(one_, "h2o", "", 320);
  test::must(read->prefill(tokens, {}));
  const auto decoded = timeline(one_, "h2o", "", 320);
  test::must(decoded->prefill(std::span(tokens).first(101), {}));
  for (size_t i = 101; i < tokens.size(); ++i)
    test::must(decoded->decode(tokens[i]));
  for (int layer = 0; layer < n_layers(); ++layer) {
    const std::vector<float> a = read->observations().attention_sum(layer, 1);
    const std::vector<float> b = decoded->observations().attention_sum(layer, 1);
    for (size_t i = 0; i < a.size(); ++i)
      EXPECT_NEAR(a[i], b[i], 2e-3 * (1 + a[i])) << layer << " " << i;
  }
}

// Every query gives each head 1 in all, whatever was evicted; an eviction keeps the sums of the rows that stay.
TEST_F(Observed, SumsMoveWithTheRows) {
  const std::vector<Token> tokens = test::random_tokens(600, 4);
  const auto session = timeline(one_, "h2o", "120tok", 400);
  test::must(session->prefill(std::span(tokens).first(400), {}));
  double before = 0;
  int64_t evicted = session->stats().evicted_rows;
  ASSERT_GT(evicted, 0);
  int n_checked = 0;
  for (size_t i = 400; i < tokens.size(); ++i) {
    test::must(session->decode(tokens[i]));
    if ((i + 1) % 64 != 0)
      continue;
    double total = 0;
    for (const float sum : session->observations().attention_sum(1, 0))
      total += sum;
    if (session->stats().evicted_rows == evicted && n_checked > 0) {
      EXPECT_NEAR(total - before, 64, 1e-2);
    } else {
      EXPECT_GT(total, 0);
    }
    evicted = session->stats().evicted_rows;
    before = total;
    ++n_checked;
  }
  EXPECT_GE(n_checked, 3);
}

// Layer 0 sees the embeddings whatever attention does, and at position 0 nothing is turned: its queries there are the
// queries before rotation.
TEST_F(Observed, MomentsAreThoseOfTheQueriesBeforeRotation) {
  write({.n_layers = 2, .rope_scaling = "yarn", .rope_factor = 4, .rope_ctx_orig = 64, .seed = 5}, "yarn.gguf");
  write({.n_layers = 2, .rope_freqs = true, .seed = 6}, "freqs.gguf");
  for (const char* file : {"tiny.gguf", "yarn.gguf", "freqs.gguf"}) {
    const Loaded loaded = load(dir_.file(file), 2);
    const std::vector<Token> tokens = test::random_tokens(150, 7);
    Recorder oracle(loaded.net->hyper());
    oracle.run(loaded, tokens, std::vector<int32_t>(tokens.size(), 0));
    const double magnitude = rotation_of(loaded.net->hyper().rope).magnitude;
    const auto session = timeline(loaded, "expected", "", 150);
    test::must(session->prefill(tokens, {}));
    const eviction::QueryMoments& moments = session->observations().moments(0, 1);
    ASSERT_EQ(moments.n_queries, 150 - kSinkQueries) << file;
    for (int g = 0; g < 2; ++g) {
      std::vector<double> sum(64, 0.0), length(32, 0.0);
      std::vector<double> outer(64 * 64, 0.0);
      for (int t = kSinkQueries; t < 150; ++t) {
        const float* q = &oracle.layers[0].q[(static_cast<size_t>(t) * 4 + 2 + g) * 64];
        for (int i = 0; i < 64; ++i) {
          sum[i] += q[i] / magnitude;
          for (int j = 0; j < 64; ++j)
            outer[i * 64 + j] += double{q[i]} * q[j] / (magnitude * magnitude);
        }
        for (int j = 0; j < 32; ++j)
          length[j] += std::hypot(double{q[2 * j]}, q[2 * j + 1]) / magnitude;
      }
      for (int i = 0; i < 64; ++i)
        EXPECT_NEAR(moments.sum[g * 64 + i], sum[i], 2e-3 * (1 + std::abs(sum[i]))) << file << " " << i;
      for (int j = 0; j < 32; ++j)
        EXPECT_NEAR(moments.length[g * 32 + j], length[j], 1e-3 * length[j]) << file << " " << j;
      for (int i = 0; i < 64 * 64; ++i)
        EXPECT_NEAR(moments.outer[g * 64 * 64 + i], outer[i], 5e-3 * (1 + std::abs(outer[i]))) << file << " " << i;
    }
  }
}

TEST_F(Observed, RotationIsThatOfTheGraphs) {
  write({.rope_freqs = true, .seed = 6}, "freqs.gguf");
  const Loaded loaded = load(dir_.file("freqs.gguf"), 1);
  const tensor::RopeParams plain{.n_dims = 64, .n_ctx_orig = 256};
  std::vector<tensor::RopeParams> cases(5, plain);
  cases[1].freq_scale = 0.25F;
  cases[2].freq_scale = 0.25F;
  cases[2].ext_factor = 1;
  cases[2].attn_factor = 0.9F;
  cases[3].neox = true;
  cases[4].freq_factors = loaded.net->hyper().rope.freq_factors;
  ASSERT_NE(cases[4].freq_factors, nullptr);
  const std::vector<int32_t> positions = {0, 1, 7, 100, 1000, 4000};
  std::vector<float> q(positions.size() * 64);
  std::mt19937 random(8);
  for (float& one : q)
    one = std::normal_distribution<float>()(random);
  for (const tensor::RopeParams& rope : cases) {
    tensor::Graph graph(*loaded.compute, loaded.net->weights());
    tensor::Tensor x = graph.input_f32(static_cast<int64_t>(positions.size()), 64);
    tensor::Tensor where = graph.input_i32(static_cast<int64_t>(positions.size()));
    tensor::Tensor turned = graph.rope(x, 1, 64, where, rope);
    graph.output(turned);
    test::must(graph.finish());
    graph.set(x, std::span<const float>(q));
    graph.set(where, std::span<const int32_t>(positions));
    graph.run();
    const std::span<const float> out = graph.read(turned);
    const eviction::Rotation rotation = rotation_of(rope);
    ASSERT_EQ(rotation.n_pairs(), 32);
    for (size_t t = 0; t < positions.size(); ++t) {
      for (int j = 0; j < 32; ++j) {
        const double angle = double{rotation.frequency[j]} * positions[t];
        const double a = q[t * 64 + rotation.first(j)];
        const double b = q[t * 64 + rotation.second(j)];
        const double tolerance = 1e-4 + 1e-6 * positions[t];  // ggml's angles are products of f32
        EXPECT_NEAR(out[t * 64 + rotation.first(j)], rotation.magnitude * (a * std::cos(angle) - b * std::sin(angle)),
                    tolerance * 4)
            << t << " " << j << " scale " << rope.freq_scale << " ext " << rope.ext_factor << " neox " << rope.neox;
        EXPECT_NEAR(out[t * 64 + rotation.second(j)], rotation.magnitude * (a * std::sin(angle) + b * std::cos(angle)),
                    tolerance * 4);
      }
    }
  }
}

// A second pass of the plain attention over text + repetition. `first`: tokens of an earlier turn.
void expect_reconstruction(const Loaded& loaded, const Timeline& session, const std::vector<Token>& text, int first) {
  const Probe probe = make_probes(probe_text(loaded.tokenizer.get()), text, first).at(0);
  std::vector<Token> tokens = text;
  tokens.insert(tokens.end(), probe.tokens.begin(), probe.tokens.end());
  Recorder oracle(loaded.net->hyper());
  oracle.run(loaded, tokens, counting(tokens.size()));
  const int n = static_cast<int>(text.size());
  for (int layer = 0; layer < loaded.net->hyper().n_layers; ++layer) {
    for (int head = 0; head < 2; ++head) {
      std::vector<double> expected(text.size(), 0.0);
      for (int t = n; t < static_cast<int>(tokens.size()); ++t) {
        for (int h = 2 * head; h < 2 * head + 2; ++h) {
          const std::vector<double> a =
              oracle.weights(layer, h, t, [&](int i) { return i < std::min(kSinkQueries, first) || i >= first; });
          for (int i = first; i < n; ++i)
            expected[i] = std::max(expected[i], a[i]);
        }
      }
      const std::vector<float> found = session.observations().reconstruction(layer, head);
      ASSERT_EQ(found.size(), text.size());
      for (size_t i = static_cast<size_t>(first); i < found.size(); ++i)
        EXPECT_NEAR(found[i], expected[i], 1e-3 + 0.02 * expected[i]) << layer << " " << head << " row " << i;
    }
  }
}

TEST_F(Observed, ReconstructionIsASecondPassOverTheText) {
  const std::vector<Token> text = test::random_tokens(180, 9);
  for (const int n_threads : {1, 2}) {
    const Loaded loaded = load(dir_.file("tiny.gguf"), n_threads);
    SessionOptions options = test::session_options({.budget = "", .policy = "none", .prompt = 180});
    options.histories.reconstruction = true;
    options.n_ubatch = n_threads == 1 ? 512 : 64;
    const auto session = take(Timeline::create(loaded.engine(), options));
    const auto plain = timeline(loaded, "none", "", 180, options.n_ubatch);
    test::must(session->prefill(std::span(text).first(100), {}));
    test::must(plain->prefill(std::span(text).first(100), {}));
    expect_reconstruction(loaded, *session, {text.begin(), text.begin() + 100}, 0);
    test::must(session->prefill(std::span(text).subspan(100), {}));
    test::must(plain->prefill(std::span(text).subspan(100), {}));
    expect_reconstruction(loaded, *session, text, 100);
    EXPECT_TRUE(same_bits(session->logits(), plain->logits())) << "the repetition leaves no trace in the logits";
    EXPECT_EQ(session->kv_map().layers, plain->kv_map().layers);
  }
}

// Softmax over the rows [0, n_rows) of query t of head h, moved by kEchoDistance in double. f64 [n_rows]. Blocks of
// rows that are odd and not near count as much as the even ones before them.
std::vector<double> moved_weights(const Recorder& oracle, int layer, int h, int t, int n_rows, RowRange near) {
  const model::HyperParams& hyper = oracle.hyper();
  const int d = hyper.head_dim;
  const eviction::Rotation rotation = rotation_of(hyper.rope);
  const float* q = &oracle.layers[layer].q[(static_cast<size_t>(t) * hyper.n_heads + h) * d];
  std::vector<double> moved(q, q + d);
  for (int j = 0; j < rotation.n_pairs(); ++j) {
    const std::complex<double> turned = std::complex<double>(moved[rotation.first(j)], moved[rotation.second(j)]) *
                                        std::polar(1.0, double{rotation.frequency[j]} * kEchoDistance);
    moved[rotation.first(j)] = turned.real();
    moved[rotation.second(j)] = turned.imag();
  }
  std::vector<double> a(n_rows);
  for (int i = 0; i < n_rows; ++i) {
    const float* k = &oracle.layers[layer].k[(static_cast<size_t>(i) * hyper.n_kv_heads + h / hyper.group()) * d];
    a[i] = std::exp(std::inner_product(k, k + d, moved.begin(), 0.0) * hyper.attention_scale);
  }
  double sum = 0;
  for (int i = 0; i < n_rows; ++i) {
    const int begin = i / kBlockRows * kBlockRows;
    const bool stands_alone = i < kEchoSinks || (begin < near.end && begin + kBlockRows > near.begin);
    sum += stands_alone ? a[i] : begin / kBlockRows % kEchoSample == 0 ? a[i] * kEchoSample : 0.0;
  }
  for (double& one : a)
    one /= sum;
  return a;
}

// The text is read as 100 and then 80 tokens: rows of the second part are asked by the last two queries of the first.
TEST_F(Observed, EchoesAreTheMovedQueriesOfNeighbours) {
  const std::vector<Token> text = test::random_tokens(180, 19);
  Recorder oracle(one_.net->hyper());
  oracle.run(one_, text, counting(180));
  for (const int n_threads : {1, 2}) {
    const Loaded loaded = load(dir_.file("tiny.gguf"), n_threads);
    const auto session = timeline(loaded, "echo", "", 180);
    test::must(session->prefill(std::span(text).first(100), {}));
    test::must(session->prefill(std::span(text).subspan(100), {}));
    double largest = 0;  // of the text
    for (int layer = 0; layer < n_layers(); ++layer) {
      for (int head = 0; head < 2; ++head) {
        const std::vector<float> found = session->observations().echo(layer, head);
        const std::vector<float> past = session->observations().past(layer, head, 180);
        ASSERT_EQ(found.size(), 180U);
        ASSERT_EQ(past.size(), 180U);
        for (int i = 0; i < 180; ++i) {
          const int seen_rows = i < 100 ? 100 : 180;  // the rows there were when the row's queries asked
          const RowRange block = {std::max(i / kSumQueries * kSumQueries, i < 100 ? 0 : 100),
                                  std::min((i / kSumQueries + 1) * kSumQueries, seen_rows)};
          double expected = 0, sum = 0;
          for (int h = 2 * head; h < 2 * head + 2; ++h) {
            for (int t = std::max(i - kEchoReach, 0); t <= std::min(i + kEchoReach, block.end - 1); ++t)
              expected = std::max(expected, moved_weights(oracle, layer, h, t, seen_rows, block)[i]);
            for (int t = kPastStride - 1; t < 180; t += kPastStride)
              sum += t >= i ? oracle.weights(layer, h, t, [](int) { return true; })[i] / 2 : 0;
          }
          EXPECT_NEAR(found[i], expected, 1e-3 + 0.02 * expected) << layer << " " << head << " row " << i;
          const int n = 180 / kPastStride - i / kPastStride;
          EXPECT_NEAR(past[i], n > 0 ? sum / n : 0, 1e-3 + 0.02 * sum) << layer << " " << head << " row " << i;
          largest = std::max(largest, expected);
        }
      }
    }
    EXPECT_GT(largest, 0.03) << "the test text has no row that is looked up";
  }
}

// Long enough for three pieces: echoes are the same whatever the threads, and graphs of a whole piece or more.
TEST_F(Observed, ThreadsDoNotChangeEchoes) {
  const Loaded two = load(dir_.file("tiny.gguf"), 2);
  const std::vector<Token> tokens = test::random_tokens(1300, 2);
  const auto a = timeline(one_, "echo", "", 1300);
  const auto b = timeline(two, "echo", "", 1300);
  const auto c = timeline(one_, "echo", "", 1300, 1024);
  for (const auto* session : {&a, &b, &c})
    test::must((*session)->prefill(tokens, {}));
  const Observations& of = a->observations();
  for (int layer = 0; layer < n_layers(); ++layer) {
    for (int head = 0; head < 2; ++head) {
      EXPECT_TRUE(same_bits(of.echo(layer, head), b->observations().echo(layer, head))) << layer;
      EXPECT_TRUE(same_bits(of.past(layer, head, 1300), b->observations().past(layer, head, 1300))) << layer;
      if (layer > 0)
        continue;  // later layers see other rounding of hidden rows
      EXPECT_TRUE(same_bits(of.echo(layer, head), c->observations().echo(layer, head))) << "graphs of 1,024";
    }
  }
}

// While tokens are decoded layers add their queries at different tokens, and none waits longer than the ring holds.
TEST_F(Observed, DecodedEchoesComeInTurns) {
  const std::vector<Token> tokens = test::random_tokens(400, 21);
  const auto session = timeline(one_, "echo", "", 400);
  test::must(session->prefill(std::span(tokens).first(100), {}));
  std::vector<std::vector<int64_t>> changed(static_cast<size_t>(n_layers()));
  std::vector<std::vector<float>> before(static_cast<size_t>(n_layers()));
  for (size_t i = 100; i < tokens.size(); ++i) {
    test::must(session->decode(tokens[i]));
    for (int layer = 0; layer < n_layers(); ++layer) {
      std::vector<float> now = session->observations().echo(layer, 0);
      std::vector<float>& old = before[static_cast<size_t>(layer)];
      old.resize(now.size(), 0.0F);  // a row begins without an echo
      if (now != old)
        changed[static_cast<size_t>(layer)].push_back(static_cast<int64_t>(i) + 1);
      old = now;
    }
  }
  for (int layer = 0; layer < n_layers(); ++layer) {
    const std::vector<int64_t>& at = changed[static_cast<size_t>(layer)];
    ASSERT_GE(at.size(), 4U);
    for (const int64_t n_tokens : std::span(at).subspan(1))
      EXPECT_EQ(n_tokens % kSumQueries, layer * kSumQueries / n_layers()) << "layer " << layer;
  }
}

TEST_F(Observed, RepetitionsFitTheBudgetInBothOrders) {
  const std::vector<Token> text = test::random_tokens(900, 10);
  for (const char* budget : {"112KiB", "160KiB", "300KiB", "900KiB", "10%", "40%"}) {
    for (const PrefillOrder order : {PrefillOrder::automatic, PrefillOrder::chunked}) {
      SessionOptions options =
          test::session_options({.budget = budget, .policy = "kvzip", .prompt = 900, .generated = 20});
      options.order = order;
      const auto session = take(Timeline::create(one_.engine(), options));
      test::must(session->prefill(text, {}));
      EXPECT_LE(session->stats().kv_peak_bytes, session->stats().kv_budget_bytes) << budget;
      EXPECT_GT(session->stats().evicted_rows, 0) << budget;
      for (int layer = 0; layer < n_layers(); ++layer) {
        for (int head = 0; head < 2; ++head) {
          const std::vector<float> found = session->observations().reconstruction(layer, head);
          EXPECT_TRUE(std::ranges::all_of(found, [](float x) { return x > 0 && x <= 1; }))
              << budget << ": each chunk was repeated in each layer before it was evicted";
        }
      }
    }
  }
}

TEST_F(Observed, OutputProjectionIsTheFilesTurnedRound) {
  const test::TinyWeights weights =
      test::make_tiny_weights({.n_layers = 2, .weights = test::WeightType::f32, .seed = 4});
  test::write_tiny_model(weights, dir_.file("wo.gguf"));
  const Loaded loaded = load(dir_.file("wo.gguf"), 1);
  const std::vector<float> w = loaded.net->output_projection(1);
  const size_t n_embd = 128;
  ASSERT_EQ(w.size(), size_t{4} * 64 * n_embd);
  for (size_t i = 0; i < size_t{4} * 64; ++i) {
    for (size_t e = 0; e < n_embd; ++e)
      ASSERT_EQ(w[i * n_embd + e], weights.layers[1].wo[e * size_t{4} * 64 + i]) << i << " " << e;
  }
}

TEST_F(Observed, KindsOfTokensComeFromTheVocabulary) {
  const auto kind = [&](const char* text, bool special) {
    return int{token_kind(*one_.tokenizer, one_.tokenizer->tokenize(text, false, special).at(0))};
  };
  EXPECT_EQ(kind("<|im_end|>", true), eviction::kSpecialToken);
  EXPECT_EQ(kind(",", false), eviction::kPunctuationToken);
  EXPECT_EQ(kind("a", false), 0);
  EXPECT_EQ(kind(" ", false), 0);
}

// Rows and moments that were put back go on as if nothing had been.
TEST_F(Observed, RestoredMomentsGoOn) {
  const model::HyperParams& hyper = one_.net->hyper();
  const auto whole = timeline(one_, "expected", "", 128);
  test::must(whole->prefill(test::random_tokens(128, 13), {}));
  auto store = take(kv::Store::create(take(store_shape(hyper, SessionOptions(), {})), 1 << 20));
  Observations restored(one_.engine(), {.query_moments = true}, *store, store->create_sequence());
  std::vector<eviction::QueryMoments> moments;
  for (int layer = 0; layer < n_layers(); ++layer) {
    for (int head = 0; head < hyper.n_kv_heads; ++head)
      moments.push_back(whole->observations().moments(layer, head));
  }
  restored.restore(128, moments);
  EXPECT_EQ(restored.moments(2, 1).sum, whole->observations().moments(2, 1).sum);
  const std::vector<float> q(static_cast<size_t>(hyper.n_heads * hyper.head_dim), 0.5F);
  const std::vector<int32_t> next = {128};
  restored.add(2, {.q = q.data(), .positions = next});
  EXPECT_EQ(restored.moments(2, 1).n_queries, 129 - kSinkQueries);
  EXPECT_EQ(restored.moments(1, 1).n_queries, 128 - kSinkQueries);
}

TEST_F(Observed, PoliciesSayWhatTheyRead) {
  const auto histories = [](const char* policy) {
    const Histories h = take(observed_histories(policy));
    return std::vector<bool>{h.attention_sum, h.echo, h.query_moments, h.reconstruction};
  };
  EXPECT_EQ(histories("h2o"), (std::vector<bool>{true, false, false, false}));
  EXPECT_EQ(histories("triattention"), (std::vector<bool>{false, false, true, false}));
  EXPECT_EQ(histories("kvzip"), (std::vector<bool>{false, false, false, true}));
  EXPECT_EQ(histories("andpro"), (std::vector<bool>{false, false, false, false}));
  EXPECT_EQ(histories("echo"), (std::vector<bool>{false, true, false, false}));
  EXPECT_EQ(histories("andpro/error"), (std::vector<bool>{false, false, false, false}));
  EXPECT_EQ(histories("andpro/error:echo=1"), (std::vector<bool>{false, true, false, false}));
  EXPECT_FALSE(observed_histories("andpor").ok());
  // Nothing is recorded that nobody reads.
  const auto plain = timeline(one_, "andpro", "50%", 100);
  test::must(plain->prefill(test::random_tokens(100, 12), {}));
  EXPECT_TRUE(plain->observations().attention_sum(0, 0).empty());
  EXPECT_TRUE(plain->observations().reconstruction(0, 0).empty());
  EXPECT_FALSE(plain->observations().wants_queries());
}

TEST_F(Observed, AForkNeedsWhatItsPolicyReads) {
  const std::vector<Token> text = test::random_tokens(100, 11);
  const auto parent = timeline(one_, "none", "", 100);
  test::must(parent->prefill(text, {}));
  for (const auto& [policy, what] : {std::pair("h2o", "attention sums"), std::pair("expected", "query moments"),
                                     std::pair("kvzip", "reconstruction"), std::pair("echo", "echoes")}) {
    const auto fork = parent->fork(test::session_options({.budget = "50%", .policy = policy, .generated = 4}));
    ASSERT_FALSE(fork.ok()) << policy;
    EXPECT_EQ(fork.error().code, ErrorCode::usage);
    EXPECT_NE(fork.error().message.find(what), std::string::npos) << fork.error().message;
  }
}

}  // namespace
}  // namespace kedge::session
