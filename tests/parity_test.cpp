// With the full cache the engine says what libllama says: tiny random models of many shapes, then the real one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "door.h"
#include "support/kl.h"
#include "support/oracle.h"
#include "support/real_model.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace kedge::test {
namespace {

// The first part of the tokens goes through prefill(), the next through score(), the last `n_decode` through decode().
struct Path {
  int64_t n_prefill = 1;
  int64_t n_decode = 0;
};

using Rows = std::vector<std::vector<float>>;  // logits f32 [positions][n_vocab]

// Compares every position from the last one of the prefill on with the rows expected there.
Divergence compare(const Model& model, const Rows& expected, std::span<const Token> tokens, const Path& path) {
  const auto n = static_cast<int64_t>(tokens.size());
  Divergence d;
  size_t next = 0;
  const auto session = open_session(model, session_options({.policy = "none", .prompt = n}));
  must(session->prefill(tokens.first(static_cast<size_t>(path.n_prefill))));
  d.add(expected[next++], session->logits());
  const int64_t n_score = n - path.n_prefill - path.n_decode;
  if (n_score > 0) {
    const auto part = tokens.subspan(static_cast<size_t>(path.n_prefill), static_cast<size_t>(n_score));
    must(session->score(part, [&](int64_t, std::span<const float> row) { d.add(expected[next++], row); }));
  }
  for (const Token t : tokens.last(static_cast<size_t>(path.n_decode))) {
    must(session->decode(t));
    d.add(expected[next++], session->logits());
  }
  EXPECT_EQ(next, expected.size());
  EXPECT_EQ(session->n_tokens(), n);
  return d;
}

Divergence compare(const Model& model, const Oracle& oracle, std::span<const Token> tokens, const Path& path,
                   const OracleConfig& config) {
  return compare(model, oracle.logits(tokens, path.n_prefill - 1, config), tokens, path);
}

std::vector<Path> paths_for(int64_t n) {
  std::vector<Path> paths = {{.n_prefill = n}};
  if (n > 1)
    paths.push_back({.n_prefill = 1});
  if (n > 10)
    paths.push_back({.n_prefill = n / 3, .n_decode = 6});
  if (n > 10)
    paths.push_back({.n_prefill = n - 5, .n_decode = 5});
  return paths;
}

struct Shape {
  const char* name;
  TinyOptions options;
};

void PrintTo(const Shape& shape, std::ostream* out) { *out << shape.name; }

class TinyParity : public testing::TestWithParam<Shape> {};

TEST_P(TinyParity, EveryLogitIsLibllamas) {
  const TempDir dir;
  write_tiny_model(make_tiny_weights(GetParam().options), dir.file("tiny.gguf"));
  const Oracle oracle(dir.file("tiny.gguf"));
  const auto model = open_model(dir.file("tiny.gguf"), 1);
  double worst = 0;
  for (const int64_t n : {1, 63, 64, 65, 200}) {
    const std::vector<Token> tokens = random_tokens(static_cast<int>(n), static_cast<uint32_t>(n));
    for (const Path& path : paths_for(n)) {
      const Divergence d = compare(*model, oracle, tokens, path, {});
      EXPECT_LE(d.max_abs(), 1e-3) << n << " tokens, prefill " << path.n_prefill << ", decode " << path.n_decode;
      worst = std::max(worst, d.max_abs());
    }
  }
  std::printf("%s: largest difference of a logit %.2e\n", GetParam().name, worst);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, TinyParity,
    testing::Values(
        Shape{"group1", {.n_heads = 2, .n_kv_heads = 2}}, Shape{"group2", {.n_heads = 4, .n_kv_heads = 2}},
        Shape{"group3", {.n_heads = 6, .n_kv_heads = 2, .n_embd = 192, .n_ff = 320, .rope_base = 100000.0F}},
        Shape{"group4", {.n_layers = 3, .n_heads = 8, .n_kv_heads = 2, .seed = 4}},
        Shape{"group8", {.n_heads = 8, .n_kv_heads = 1, .seed = 5}},
        Shape{"dim80", {.n_heads = 4, .n_kv_heads = 2, .head_dim = 80, .n_embd = 160}},
        Shape{"dim96", {.n_heads = 3, .n_kv_heads = 1, .head_dim = 96, .n_embd = 288}},
        Shape{"dim128", {.n_heads = 4, .n_kv_heads = 1, .head_dim = 128, .n_embd = 256, .rope_base = 500000.0F}},
        Shape{"tied", {.n_heads = 2, .n_kv_heads = 2, .tied = true}}, Shape{"rope_freqs", {.rope_freqs = true}},
        Shape{"linear", {.rope_scaling = "linear", .rope_factor = 4.0F}},
        Shape{"yarn", {.rope_scaling = "yarn", .rope_factor = 4.0F, .rope_ctx_orig = 64}},
        Shape{"biases", {.n_heads = 2, .n_kv_heads = 1, .biases = true}},
        Shape{"odd_vocabulary", {.n_layers = 1, .n_vocab = 259}}),
    [](const testing::TestParamInfo<Shape>& i) { return i.param.name; });

// Weights of these types re-quantise (f16: round) the activations of a product, each engine at its own places, which
// moves logits of a spread of 1.2 by up to the tolerance.
struct Quantised {
  const char* name;
  WeightType type;
  double mean_kld;
  double max_abs;
};

void PrintTo(const Quantised& q, std::ostream* out) { *out << q.name; }

class TinyQuantisedParity : public testing::TestWithParam<Quantised> {};

TEST_P(TinyQuantisedParity, StaysWithinTheTolerance) {
  const TempDir dir;
  write_tiny_model(make_tiny_weights({.n_heads = 4, .n_kv_heads = 2, .n_embd = 256, .weights = GetParam().type}),
                   dir.file("tiny.gguf"));
  const Oracle oracle(dir.file("tiny.gguf"));
  const auto model = open_model(dir.file("tiny.gguf"), 1);
  double worst_kld = 0;
  double worst_abs = 0;
  for (const int64_t n : {1, 65, 200}) {
    const std::vector<Token> tokens = random_tokens(static_cast<int>(n), 7);
    for (const Path& path : paths_for(n)) {
      const Divergence d = compare(*model, oracle, tokens, path, {});
      worst_kld = std::max(worst_kld, d.mean_kld());
      worst_abs = std::max(worst_abs, d.max_abs());
      EXPECT_LE(d.mean_kld(), GetParam().mean_kld) << n << " tokens, prefill " << path.n_prefill;
      EXPECT_LE(d.max_abs(), GetParam().max_abs) << n << " tokens, prefill " << path.n_prefill;
    }
  }
  std::printf("%s: worst mean KLD %.2e, largest difference of a logit %.2e\n", GetParam().name, worst_kld, worst_abs);
}

INSTANTIATE_TEST_SUITE_P(Types, TinyQuantisedParity,
                         testing::Values(Quantised{"f16", WeightType::f16, 1e-5, 0.02},
                                         Quantised{"q8_0", WeightType::q8_0, 2e-4, 0.1},
                                         Quantised{"q4_1", WeightType::q4_1, 2e-4, 0.1}),
                         [](const testing::TestParamInfo<Quantised>& i) { return i.param.name; });

// ---- the real model ----

constexpr OracleConfig kExact = {.n_threads = 2};  // f32 rows, no flash attention

class RealParity : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_FALSE(real_model_path().empty()) << "KEDGE_MODEL names no file; `tools/setup --print-env` says where it is";
    text_ = real_text();
    ASSERT_GT(text_.size(), 100000U) << "no text: KEDGE_TEXT or Debian's developers-reference";
  }

  // n tokens of the text from `offset` (a share of it) on.
  std::vector<Token> window(const Oracle& oracle, double offset, size_t n) const {
    const auto begin = static_cast<size_t>(offset * static_cast<double>(text_.size()));
    std::vector<Token> tokens = oracle.tokenize(std::string_view(text_).substr(begin, n * 8 + 64));
    EXPECT_GE(tokens.size(), n);
    tokens.resize(n);
    return tokens;
  }

  std::string text_;
};

TEST_F(RealParity, F32LogitsAreLibllamas) {
  const Oracle oracle(f32_model_path());
  const auto model = open_model(f32_model_path());
  double same = 0;
  int64_t rows = 0;
  const auto judge = [&](const Rows& expected, std::span<const Token> tokens, const Path& path) {
    const Divergence d = compare(*model, expected, tokens, path);
    std::printf("%5zu tokens, %3lld compared: mean KLD %.2e, max %.2e, same top %.4f\n", tokens.size(),
                static_cast<long long>(d.n()), d.mean_kld(), d.max_kld(), d.same_top());
    EXPECT_LE(d.mean_kld(), 5e-6) << tokens.size() << " tokens";
    same += d.same_top() * static_cast<double>(d.n());
    rows += d.n();
  };
  double offset = 0.02;
  for (const int64_t n : {1, 63, 64, 65, 500}) {
    const std::vector<Token> tokens = window(oracle, offset, static_cast<size_t>(n));
    offset += 0.11;
    const Path path = {.n_prefill = std::max<int64_t>(1, n / 4), .n_decode = n > 1 ? 8 : 0};
    judge(oracle.logits(tokens, path.n_prefill - 1, kExact), tokens, path);
  }
  // The long prompts are one text: libllama takes a minute and more for it, so it reads it once.
  const std::vector<Token> text = window(oracle, 0.6, 6000);
  std::map<int64_t, Rows> expected = {{2000, {}}, {6000, {}}};
  constexpr int64_t kCompared = 129;
  oracle.logits(text, 2000 - kCompared, kExact, [&](int64_t i, std::span<const float> row) {
    for (auto& [n, wanted] : expected) {
      if (i >= n - kCompared && i < n)
        wanted.emplace_back(row.begin(), row.end());
    }
  });
  for (const auto& [n, wanted] : expected) {
    judge(wanted, std::span(text).first(static_cast<size_t>(n)), {.n_prefill = n - kCompared + 1, .n_decode = 8});
  }
  EXPECT_GE(same / static_cast<double>(rows), 0.995);
}

TEST_F(RealParity, F32GreedyTokensAreLibllamas) {
  const Oracle oracle(f32_model_path());
  const auto model = open_model(f32_model_path());
  int identical = 0;
  for (int i = 0; i < 10; ++i) {
    const std::vector<Token> prompt = window(oracle, 0.05 + 0.08 * i, static_cast<size_t>(20 + 17 * i));
    const auto session = open_session(*model, session_options({.policy = "none", .prompt = 300, .generated = 100}));
    identical += greedy(*session, prompt, 100) == oracle.greedy(prompt, 100, kExact) ? 1 : 0;
  }
  std::printf("%d of 10 greedy continuations of 100 tokens are identical\n", identical);
  EXPECT_GE(identical, 9);
}

// On quantised weights libllama's own configurations differ by this much; ours may be no further from it.
TEST_F(RealParity, QuantisedIsNoFurtherThanLibllamaFromItself) {
  const Oracle oracle(real_model_path());
  const auto model = open_model(real_model_path());
  double ours = 0;
  double theirs = 0;
  for (const double offset : {0.11, 0.37, 0.52, 0.83}) {
    const std::vector<Token> tokens = window(oracle, offset, 400);
    const Path path = {.n_prefill = 100, .n_decode = 40};
    const Divergence d = compare(*model, oracle, tokens, path, kExact);
    const auto base = oracle.logits(tokens, path.n_prefill - 1, kExact);
    const auto flash =
        oracle.logits(tokens, path.n_prefill - 1, {.flash_attention = true, .kv_f16 = true, .n_threads = 2});
    Divergence self;
    for (size_t i = 0; i < base.size(); ++i)
      self.add(base[i], flash[i]);
    std::printf("offset %.2f: ours %.2e (same top %.3f), libllama's own %.2e (%.3f)\n", offset, d.mean_kld(),
                d.same_top(), self.mean_kld(), self.same_top());
    ours += d.mean_kld();
    theirs += self.mean_kld();
  }
  EXPECT_LE(ours, 1.3 * theirs);
}

}  // namespace
}  // namespace kedge::test
