// Gates that discard ahead of the budget, through the public door: what stays, what the threshold follows, and that
// nothing else changes. docs/gate.md
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "door.h"
#include "support/kl.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace kedge::test {
namespace {

constexpr int kLayers = 6;
constexpr int kKvHeads = 2;

class TinyGateMode : public testing::Test {
 protected:
  void SetUp() override {
    write_tiny_model(
        make_tiny_weights({.n_layers = kLayers, .n_heads = 4, .n_kv_heads = kKvHeads, .qk_gain = 1.4F, .seed = 5}),
        dir_.file("tiny.gguf"));
    model_ = open_model(dir_.file("tiny.gguf"), 1);
  }
  std::unique_ptr<Session> session(const std::string& mode, const Request& request) const {
    SessionOptions options = session_options(request);
    options.gate_mode = mode;
    options.trace_memory = true;
    return open_session(*model_, options);
  }
  // Share of the rows of tokens [begin, end) that are held, over all layers and heads.
  static double kept(const Session& session, int32_t begin, int32_t end) {
    int64_t n = 0;
    const KvMap map = session.kv_map();
    for (const auto& layer : map.layers) {
      for (const auto& head : layer)
        n += std::ranges::count_if(head, [&](int32_t position) { return position >= begin && position < end; });
    }
    return static_cast<double>(n) / (static_cast<double>(end - begin) * kLayers * kKvHeads);
  }
  static void decode(Session& session, std::span<const Token> tokens) {
    for (const Token token : tokens)
      must(session.decode(token));
  }

  TempDir dir_;
  std::unique_ptr<Model> model_;
};

TEST_F(TinyGateMode, AThresholdDiscardsWithoutABudget) {
  const std::vector<Token> tokens = random_tokens(600, 1);
  double last = 1.1;
  for (const char* at : {"0", "0.3", "0.7", "1"}) {
    const std::string mode = std::string("threshold:window=32,sinks=4,at=") + at;
    const auto run = session(mode, {.policy = "none", .prompt = 500});
    must(run->prefill(std::span(tokens).first(500)));
    EXPECT_EQ(kept(*run, 0, 4), 1) << at;
    EXPECT_EQ(kept(*run, 500 - 32, 500), 1) << at;
    const double share = kept(*run, 4, 500 - 32);
    EXPECT_LT(share, last) << at;
    EXPECT_TRUE(*at != '0' || at[1] != 0 || share == 1) << at;
    EXPECT_TRUE(*at != '1' || share == 0) << at;
    last = share;
    const Stats stats = run->stats();
    EXPECT_EQ(stats.discarded_rows, stats.evicted_rows) << at;
    EXPECT_EQ(stats.kv_rows + stats.evicted_rows, 500 * kLayers * kKvHeads) << at;
    EXPECT_DOUBLE_EQ(stats.gate_threshold, std::stod(at));
    // Rows are discarded while decoding too, each layer at its turn.
    decode(*run, std::span(tokens).subspan(500));
    EXPECT_EQ(kept(*run, 600 - 32, 600), 1) << at;
    EXPECT_NEAR(kept(*run, 4, 600 - 32 - 64), share, 0.15) << at;
    if (*at == '1') {
      EXPECT_EQ(kept(*run, 4, 600 - 32 - 64), 0);
      EXPECT_LT(stats.kv_live_bytes, stats.kv_full_bytes / 4) << "memory is freed";
    }
  }
}

TEST_F(TinyGateMode, TheBudgetModeChangesNothing) {
  const std::vector<Token> tokens = random_tokens(400, 2);
  const Request request{.budget = "25%", .policy = "gate", .prompt = 400};
  const auto plain = open_session(*model_, session_options(request));
  const auto named = session("budget", request);
  must(plain->prefill(tokens));
  must(named->prefill(tokens));
  EXPECT_EQ(plain->kv_map().layers, named->kv_map().layers);
  EXPECT_EQ(logits_of(*plain), logits_of(*named));
  EXPECT_EQ(named->stats().discarded_rows, 0);
}

// The gate goes first, the policy evicts what is still too much: any policy, types of rows, layers that share.
TEST_F(TinyGateMode, TheBudgetHoldsUnderEveryAllocator) {
  const std::vector<Token> tokens = random_tokens(700, 3);
  for (const char* policy : {"gate", "andpro", "andpro/retention", "andpro/error", "streaming", "echo"}) {
    for (const char* type : {"f16", "q8_0"}) {
      SessionOptions options = session_options({.budget = "300KiB", .policy = policy, .prompt = 400});
      options.gate_mode = "adaptive:window=32";
      set_cache_types(options, type, type);
      const auto run = open_session(*model_, options);
      must(run->prefill(std::span(tokens).first(400)));
      decode(*run, std::span(tokens).subspan(400));
      const Stats stats = run->stats();
      const std::string where = std::string(policy) + ", " + type;
      EXPECT_LE(stats.kv_peak_bytes, stats.kv_budget_bytes) << where;
      EXPECT_GT(stats.discarded_rows, 0) << where;
      EXPECT_GE(stats.evicted_rows, stats.discarded_rows) << where;
      EXPECT_EQ(stats.kv_rows + stats.evicted_rows, 700 * kLayers * kKvHeads) << where;
      for (const float logit : run->logits())
        ASSERT_TRUE(std::isfinite(logit)) << where;
    }
  }
}

// A store that fills discards more and more and never exceeds its budget.
TEST_F(TinyGateMode, TheThresholdRisesAsTheStoreFills) {
  const std::vector<Token> tokens = random_tokens(6000, 4);
  const auto run =
      session("adaptive:window=32,gap=0.02,high=0.6", {.budget = "1MiB", .policy = "gate/at-append", .prompt = 32});
  must(run->prefill(std::span(tokens).first(32)));
  const double first = run->stats().gate_threshold;
  EXPECT_LT(first, 0.45) << "more than half is free";
  decode(*run, std::span(tokens).subspan(32));
  const Stats full = run->stats();
  EXPECT_LE(full.kv_peak_bytes, full.kv_budget_bytes);
  EXPECT_GE(full.kv_peak_bytes, 0.95 * static_cast<double>(full.kv_budget_bytes));
  double threshold = first;
  double used = 0;
  for (const MemoryPoint& point : run->memory_trace()) {
    if (point.tokens <= 32)
      continue;
    const double now = static_cast<double>(point.kv_live_bytes) / static_cast<double>(full.kv_budget_bytes);
    if (now > used + 0.05) {  // fuller than ever: at least as strict as ever
      EXPECT_GE(point.gate_threshold, threshold - 0.02) << now;
      threshold = point.gate_threshold;
      used = now;
    }
  }
  EXPECT_GT(full.gate_threshold, 0.55);
  EXPECT_LE(full.gate_threshold, 0.6);
}

// When rows are given back more is kept again, and what was kept goes when the store fills anew.
TEST_F(TinyGateMode, TheThresholdFallsWithThePressure) {
  const std::vector<Token> tokens = random_tokens(4000, 5);
  const auto run = session("adaptive:window=32,gap=0.02", {.budget = "1MiB", .policy = "gate/pooled", .prompt = 64});
  must(run->prefill(std::span(tokens).first(64)));
  run->mark();
  decode(*run, std::span(tokens).subspan(64));
  const double strict = run->stats().gate_threshold;
  const double few = kept(*run, 64, 64 + 64);
  must(run->rewind());
  decode(*run, std::span(tokens).subspan(64, 128));
  EXPECT_LT(run->stats().gate_threshold, strict - 0.1);
  const double many = kept(*run, 64, 64 + 64);
  EXPECT_GT(many, few);
  run->drop_mark();
  decode(*run, std::span(tokens).subspan(192));
  EXPECT_LT(kept(*run, 64, 64 + 64), (few + many) / 2) << "old rows go as the threshold rises";
}

// Weights of layers and of the text's start divide the threshold.
TEST_F(TinyGateMode, LayersAndTheStartOfTheTextHaveWeights) {
  const std::vector<Token> tokens = random_tokens(500, 6);
  const Request request{.policy = "none", .prompt = 500};
  const auto plain = session("threshold:window=32,at=0.6", request);
  const auto weighted = session("threshold:window=32,at=0.6,layers=0:100,early=100,early-weight=100", request);
  must(plain->prefill(tokens));
  must(weighted->prefill(tokens));
  EXPECT_GT(kept(*weighted, 0, 100), kept(*plain, 0, 100));
  const auto rows = [](const Session& run, size_t layer) {
    const KvMap map = run.kv_map();
    size_t n = 0;
    for (const auto& head : map.layers[layer])
      n += head.size();
    return n;
  };
  EXPECT_GT(rows(*weighted, 0), rows(*plain, 0));
  EXPECT_LT(rows(*weighted, 2), 2U * 500U);
}

TEST_F(TinyGateMode, ASavedSessionAndAForkGoOnAlike) {
  const std::vector<Token> tokens = random_tokens(900, 7);
  const auto run = session("adaptive:window=32", {.budget = "400KiB", .policy = "gate", .prompt = 300});
  must(run->prefill(std::span(tokens).first(300)));
  decode(*run, std::span(tokens).subspan(300, 200));
  const std::string file = dir_.file("s.kedge");
  must(run->save(file));
  Result<std::unique_ptr<Session>> restored = Session::restore(*model_, file);
  ASSERT_TRUE(restored.ok()) << restored.error().message;
  Result<std::unique_ptr<Session>> forked = run->fork();
  ASSERT_TRUE(forked.ok()) << forked.error().message;
  EXPECT_EQ((*restored)->options().gate_mode, "adaptive:window=32");
  for (Session* one : {run.get(), restored->get(), forked->get()})
    decode(*one, std::span(tokens).subspan(500));
  EXPECT_EQ(run->kv_map().layers, (*restored)->kv_map().layers);
  EXPECT_EQ(run->kv_map().layers, (*forked)->kv_map().layers);
  EXPECT_EQ(run->stats().gate_threshold, (*restored)->stats().gate_threshold);
  EXPECT_EQ(run->stats().discarded_rows, (*restored)->stats().discarded_rows);
}

TEST_F(TinyGateMode, AForkUnderAModeIsASessionThatReadTheTextItself) {
  const std::vector<Token> tokens = random_tokens(400, 8);
  SessionOptions whole = session_options({.policy = "none", .prompt = 400});
  whole.histories = {.attention_sum = true, .echo = true, .gate = true};  // what the model's gate asks for
  whole.n_observed = 64;
  const auto parent = open_session(*model_, whole);
  must(parent->prefill(tokens));
  for (const char* text : {"", "25%"}) {
    SessionOptions options = session_options({.budget = text, .policy = *text == 0 ? "none" : "gate", .prompt = 400});
    options.gate_mode = "adaptive:window=32,low=0.4";
    Result<std::unique_ptr<Session>> forked = parent->fork(options);
    ASSERT_TRUE(forked.ok()) << forked.error().message;
    const auto alone = open_session(*model_, options);
    must(alone->prefill(tokens));
    EXPECT_EQ(alone->kv_map().layers, (*forked)->kv_map().layers) << text;
    EXPECT_GT(alone->stats().discarded_rows, 0) << text;
    EXPECT_EQ(alone->stats().discarded_rows, (*forked)->stats().discarded_rows) << text;
  }
}

TEST_F(TinyGateMode, ProtectedRowsStay) {
  const std::vector<Token> tokens = random_tokens(500, 9);
  SessionOptions options = session_options({.policy = "none", .prompt = 500});
  options.gate_mode = "threshold:at=1,window=32";
  options.protect.spans = {{.begin = 100, .end = 120}};
  options.recent = "64";
  const auto run = open_session(*model_, options);
  must(run->prefill(tokens));
  EXPECT_EQ(kept(*run, 100, 120), 1);
  EXPECT_EQ(kept(*run, 500 - 64, 500), 1);
  EXPECT_EQ(kept(*run, 120, 500 - 64), 0);
}

TEST_F(TinyGateMode, AModelWithoutAGateAndAModeThatIsNoneAreRefused) {
  const Result<std::unique_ptr<Model>> bare = Model::load({.path = dir_.file("tiny.gguf"), .n_threads = 1});
  ASSERT_TRUE(bare.ok());
  SessionOptions options = session_options({.policy = "none", .prompt = 10});
  options.gate_mode = "adaptive";
  const Result<std::unique_ptr<Session>> none = Session::create(**bare, options);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, ErrorCode::usage);
  EXPECT_THAT(none.error().message, testing::AllOf(testing::HasSubstr("adaptive"), testing::HasSubstr("--gate FILE")));
  options.gate_mode = "adaptive:gap=7";
  const Result<std::unique_ptr<Session>> wrong = Session::create(*model_, options);
  ASSERT_FALSE(wrong.ok());
  EXPECT_THAT(wrong.error().message, testing::HasSubstr("'gap'"));
}

}  // namespace
}  // namespace kedge::test
