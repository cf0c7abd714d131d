// Every type of key rows with every type of value rows, through the public door: budgets, determinism, closeness.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "door.h"
#include "support/kl.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace kedge::test {
namespace {

const char* const kTypes[] = {"f16", "bf16", "q8_0", "q4_0"};

class KvTypes : public testing::Test {
 protected:
  void SetUp() override {
    write_tiny_model(make_tiny_weights({.n_layers = 3, .n_heads = 4, .n_kv_heads = 2, .qk_gain = 1.4F, .seed = 3}),
                     dir_.file("tiny.gguf"));
    model_ = open_model(dir_.file("tiny.gguf"), 1);
  }

  TempDir dir_;
  std::unique_ptr<Model> model_;
};

SessionOptions with_types(SessionOptions options, const std::string& k, const std::string& v) {
  options.cache_type_k = k;
  options.cache_type_v = v;
  return options;
}

// Logits after a prompt and after every one of n decoded tokens.
std::vector<std::vector<float>> trajectory(Session& session, std::span<const Token> prompt,
                                           std::span<const Token> fed) {
  must(session.prefill(prompt));
  std::vector<std::vector<float>> out = {logits_of(session)};
  for (const Token token : fed) {
    must(session.decode(token));
    out.push_back(logits_of(session));
  }
  return out;
}

TEST_F(KvTypes, EveryPairUnderEveryPolicyMeetsItsBudgetWhateverTheThreads) {
  const auto two = open_model(dir_.file("tiny.gguf"), 2);
  const std::vector<Token> prompt = random_tokens(300, 1);
  const std::vector<Token> fed = random_tokens(70, 2);
  for (const char* k : kTypes) {
    for (const char* v : kTypes) {
      for (const char* policy : {"none", "andpro", "streaming"}) {
        const std::string where = std::string(k) + " " + v + " " + policy;
        const bool evicts = std::strcmp(policy, "none") != 0;
        const SessionOptions options = with_types(
            session_options({.budget = evicts ? "192KiB" : "", .policy = policy, .prompt = 300, .generated = 70}), k,
            v);
        const auto session = open_session(*model_, options);
        const auto logits = trajectory(*session, prompt, fed);
        const Stats stats = session->stats();
        EXPECT_LE(stats.kv_peak_bytes, stats.kv_budget_bytes) << where;
        EXPECT_GT(stats.kv_live_bytes, 0) << where;
        if (evicts) {
          EXPECT_LE(stats.kv_budget_bytes, 192 * 1024) << where;
        } else {
          EXPECT_EQ(stats.kv_rows, 370 * 6) << where;
        }
        for (const auto& row : logits)
          EXPECT_TRUE(std::ranges::all_of(row, [](float x) { return std::isfinite(x); })) << where;
        const auto other = open_session(*two, options);
        EXPECT_EQ(trajectory(*other, prompt, fed), logits) << where << ": two threads";
        EXPECT_EQ(other->stats().kv_rows, stats.kv_rows) << where;
      }
    }
  }
}

TEST_F(KvTypes, FewerBitsHoldMoreRowsOfTheSameBytes) {
  double rows[2] = {};
  int i = 0;
  for (const char* type : {"f16", "q4_0"}) {
    const SessionOptions options = with_types(
        session_options({.budget = "768KiB", .policy = "streaming", .prompt = 20000, .generated = 8}), type, type);
    const Result<BudgetMeaning> meaning = explain_budget(*model_, options);
    ASSERT_TRUE(meaning.ok()) << meaning.error().message;
    rows[i++] = meaning->rows_per_head;
    EXPECT_LE(meaning->budget_bytes, 768 * 1024);
  }
  EXPECT_GT(rows[1], 2 * rows[0]) << rows[0] << " rows in f16, " << rows[1] << " in q4";
}

TEST_F(KvTypes, Q8IsCloseToF16AndQ4NotFar) {
  const std::vector<Token> prompt = random_tokens(300, 3);
  const std::vector<Token> fed = random_tokens(40, 4);
  const SessionOptions options = session_options({.policy = "none", .prompt = 300, .generated = 40});
  const auto f16 = trajectory(*open_session(*model_, options), prompt, fed);
  double kld[2] = {};
  int i = 0;
  for (const char* type : {"q8_0", "q4_0"}) {
    Divergence d;
    const auto rows = trajectory(*open_session(*model_, with_types(options, type, type)), prompt, fed);
    for (size_t t = 0; t < rows.size(); ++t)
      d.add(f16[t], rows[t]);
    EXPECT_GT(d.max_abs(), 0) << type << " was not used";
    kld[i++] = d.mean_kld();
  }
  EXPECT_LT(kld[0], 1e-4);
  EXPECT_LT(kld[1], 1e-2);
  EXPECT_LT(kld[0], kld[1]);
}

// Rows within the window of a short sequence are the f16 rows, so nothing differs.
TEST_F(KvTypes, WithinTheWindowNothingIsQuantised) {
  const std::vector<Token> prompt = random_tokens(20, 5);
  const std::vector<Token> fed = random_tokens(20, 6);
  const SessionOptions options = session_options({.policy = "none", .prompt = 20, .generated = 20});
  const auto f16 = trajectory(*open_session(*model_, options), prompt, fed);
  EXPECT_EQ(trajectory(*open_session(*model_, with_types(options, "q4_0", "q4_0")), prompt, fed), f16);
}

TEST_F(KvTypes, ABudgetThatHoldsEverythingChangesNoBit) {
  const std::vector<Token> prompt = random_tokens(200, 7);
  const std::vector<Token> fed = random_tokens(30, 8);
  for (const char* type : {"q8_0", "q4_0"}) {
    const SessionOptions options =
        with_types(session_options({.policy = "none", .prompt = 200, .generated = 30}), type, type);
    const auto expected = trajectory(*open_session(*model_, options), prompt, fed);
    for (const char* budget : {"8MiB", "100%"}) {
      const SessionOptions limited = with_types(
          session_options({.budget = budget, .policy = "andpro", .prompt = 200, .generated = 30}), type, type);
      EXPECT_EQ(trajectory(*open_session(*model_, limited), prompt, fed), expected) << type << " " << budget;
    }
  }
}

TEST_F(KvTypes, AForkGoesOnLikeTheSessionItself) {
  const std::vector<Token> prompt = random_tokens(200, 9);
  const std::vector<Token> fed = random_tokens(30, 10);
  const SessionOptions options =
      with_types(session_options({.policy = "none", .prompt = 200, .generated = 30}), "q8_0", "q4_0");
  const auto session = open_session(*model_, options);
  must(session->prefill(prompt));
  auto fork = session->fork(options);
  ASSERT_TRUE(fork.ok()) << fork.error().message;
  for (const Token token : fed) {
    must(session->decode(token));
    must((*fork)->decode(token));
    ASSERT_EQ(logits_of(*session), logits_of(**fork));
  }
}

TEST_F(KvTypes, MistakesAreUsageErrors) {
  for (const auto& [k, v, window, word] : {std::tuple{"q5_0", "f16", 32, "'q5_0' of the keys"},
                                           {"f16", "f32", 32, "'f32' of the values"},
                                           {"q8_0", "q8_0", 20, "multiple of 16"},
                                           {"q8_0", "q8_0", -16, "multiple of 16"}}) {
    SessionOptions options = with_types(session_options({.prompt = 20}), k, v);
    options.f16_window = window;
    const auto session = Session::create(*model_, options);
    ASSERT_FALSE(session.ok());
    EXPECT_EQ(session.error().code, ErrorCode::usage);
    EXPECT_NE(session.error().message.find(word), std::string::npos) << session.error().message;
  }
}

}  // namespace
}  // namespace kedge::test
