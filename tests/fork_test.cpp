// A forked session is the session that had read the tokens itself: same bytes, same rows, same bits.
#include <gtest/gtest.h>

#include <cstring>

#include "door.h"
#include "kedge/policy.h"
#include "support/oracle.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace kedge::test {
namespace {

class TinyFork : public testing::Test {
 protected:
  void SetUp() override {
    write_tiny_model(make_tiny_weights({.n_layers = 3, .n_heads = 4, .n_kv_heads = 2, .qk_gain = 1.4F, .seed = 3}),
                     dir_.file("tiny.gguf"));
    model_ = open_model(dir_.file("tiny.gguf"), 1);
  }
  // The full cache of a prompt, with the query rows that any scorer of the registry looks at.
  std::unique_ptr<Session> full(std::span<const Token> prompt, int n_batch = 2048) {
    SessionOptions options = session_options({.policy = "none", .prompt = static_cast<int64_t>(prompt.size())});
    options.n_batch = n_batch;
    for (const std::string& policy : evicting_scorers())
      options.n_observed = std::max(options.n_observed, *observed_rows(policy, model_.get()));
    options.histories = {
        .attention_sum = true, .echo = true, .query_moments = true, .reconstruction = true, .gate = true};
    auto session = open_session(*model_, options);
    must(session->prefill(prompt));
    return session;
  }

  TempDir dir_;
  std::unique_ptr<Model> model_;
};

void expect_same(const Session& alone, const Session& fork, const std::string& where) {
  const std::vector<float> a = logits_of(alone);
  const std::vector<float> b = logits_of(fork);
  ASSERT_EQ(a.size(), b.size()) << where;
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0) << where << ": logits";
  EXPECT_EQ(alone.kv_map().layers, fork.kv_map().layers) << where;
  const Stats x = alone.stats();
  const Stats y = fork.stats();
  EXPECT_EQ(x.kv_live_bytes, y.kv_live_bytes) << where;
  EXPECT_EQ(x.kv_peak_bytes, y.kv_peak_bytes) << where;
  EXPECT_EQ(x.kv_budget_bytes, y.kv_budget_bytes) << where;
  EXPECT_EQ(x.kv_full_bytes, y.kv_full_bytes) << where;
  EXPECT_EQ(x.evicted_rows, y.evicted_rows) << where;
  EXPECT_EQ(x.prompt_tokens, y.prompt_tokens) << where;
  EXPECT_EQ(x.policy, y.policy) << where;
}

TEST_F(TinyFork, EqualsASessionOfItsOwnUnderEveryPolicyAndBudget) {
  for (const int64_t n : {37, 500}) {
    const std::vector<Token> prompt = random_tokens(static_cast<int>(n), 1);
    const std::vector<Token> question = random_tokens(9, 2);
    const auto parent = full(prompt);
    for (const std::string& policy : evicting_scorers()) {
      for (const char* text : {"50%", "13%", "20tok", "100%"}) {
        for (const bool hold : {true, false}) {
          const std::string where = policy + " " + text + " " + std::to_string(n) + (hold ? " hold" : "");
          const SessionOptions options = session_options(
              {.budget = text, .policy = policy, .prompt = n, .generated = 20, .hold_continuation = hold});
          const auto alone = open_session(*model_, options);
          must(alone->prefill(prompt));
          Result<std::unique_ptr<Session>> forked = parent->fork(options);
          ASSERT_TRUE(forked.ok()) << where << ": " << forked.error().message;
          expect_same(*alone, **forked, where);
          must(alone->prefill(question));
          must((*forked)->prefill(question));
          expect_same(*alone, **forked, where + ", asked");
          for (int i = 0; i < 8; ++i) {
            must(alone->decode(i));
            must((*forked)->decode(i));
          }
          expect_same(*alone, **forked, where + ", answered");
        }
      }
    }
    EXPECT_EQ(parent->n_tokens(), n);
    EXPECT_EQ(parent->stats().evicted_rows, 0);
  }
}

TEST_F(TinyFork, AParentReadInChunksGivesTheSameRows) {
  const std::vector<Token> prompt = random_tokens(1300, 4);
  const SessionOptions options =
      session_options({.budget = "20%", .policy = "andpro", .prompt = 1300, .generated = 4, .hold_continuation = true});
  const auto alone = open_session(*model_, options);
  must(alone->prefill(prompt));
  const auto parent = full(prompt, 512);
  Result<std::unique_ptr<Session>> forked = parent->fork(options);
  ASSERT_TRUE(forked.ok()) << forked.error().message;
  expect_same(*alone, **forked, "chunks of 512");
}

TEST_F(TinyFork, TracesMemoryAsASessionOfItsOwn) {
  const std::vector<Token> prompt = random_tokens(300, 5);
  SessionOptions options =
      session_options({.budget = "25%", .policy = "snapkv", .prompt = 300, .generated = 20, .hold_continuation = true});
  options.trace_memory = true;
  const auto alone = open_session(*model_, options);
  must(alone->prefill(prompt));
  const auto parent = full(prompt);
  const auto forked = parent->fork(options);
  ASSERT_TRUE(forked.ok());
  const std::span<const MemoryPoint> a = alone->memory_trace();
  const std::span<const MemoryPoint> b = (*forked)->memory_trace();
  ASSERT_EQ(a.size(), 2U * 3U);  // before and after the eviction of each layer
  ASSERT_EQ(a.size(), b.size());
  int64_t peak = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].tokens, b[i].tokens);
    EXPECT_EQ(a[i].kv_live_bytes, b[i].kv_live_bytes);
    EXPECT_EQ(a[i].evicted_rows, b[i].evicted_rows);
    peak = std::max(peak, a[i].kv_live_bytes);
  }
  EXPECT_EQ(peak, alone->stats().kv_peak_bytes);
  EXPECT_EQ(a.back().tokens, 300.0);
  EXPECT_EQ(a.back().evicted_rows, alone->stats().evicted_rows);
  EXPECT_TRUE(parent->memory_trace().empty());
}

TEST_F(TinyFork, RefusesWhatItCannotDoExactly) {
  const std::vector<Token> prompt = random_tokens(300, 6);
  const auto parent = full(prompt);
  const auto why = [&](const Session& from, const SessionOptions& options) {
    const Result<std::unique_ptr<Session>> forked = from.fork(options);
    return forked.ok() ? std::string() : forked.error().message;
  };
  SessionOptions options = session_options({.budget = "25%", .policy = "andpro", .generated = 20});
  EXPECT_EQ(why(*parent, options), "");
  SessionOptions chunked = options;
  chunked.order = PrefillOrder::chunked;
  EXPECT_NE(why(*parent, chunked).find("in chunks"), std::string::npos);
  SessionOptions other_type = options;
  other_type.cache_type_v = "bf16";
  EXPECT_NE(why(*parent, other_type).find("cache types f16 and bf16, here f16 and f16"), std::string::npos);
  SessionOptions short_context = options;
  short_context.n_ctx = 100;
  EXPECT_NE(why(*parent, short_context).find("shorter"), std::string::npos);
  SessionOptions wide = options;
  wide.policy = "andpro:window=200";
  EXPECT_NE(why(*parent, wide).find("observes 200 query rows"), std::string::npos);

  const auto empty = open_session(*model_, session_options({.policy = "none"}));
  EXPECT_NE(why(*empty, options).find("nothing has been read"), std::string::npos);
  const auto evicted = open_session(*model_, session_options({.budget = "25%", .prompt = 300, .generated = 20}));
  must(evicted->prefill(prompt));
  EXPECT_NE(why(*evicted, options).find("rows were evicted here"), std::string::npos);
}

TEST_F(TinyFork, TheSamplerLooksBackOnWhatTheParentRead) {
  const std::vector<Token> prompt(64, 7);
  const auto parent = full(prompt);
  Result<std::unique_ptr<Session>> forked = parent->fork(session_options({.policy = "none", .generated = 4}));
  ASSERT_TRUE(forked.ok());
  const SamplerOptions heavy{.temperature = 0, .repeat_penalty = 1e4F};
  parent->set_sampler(heavy);
  (*forked)->set_sampler(heavy);
  for (int i = 0; i < 4; ++i) {
    const Token a = parent->sample();
    EXPECT_EQ(a, (*forked)->sample());
    must(parent->decode(a));
    must((*forked)->decode(a));
  }
}

}  // namespace
}  // namespace kedge::test
