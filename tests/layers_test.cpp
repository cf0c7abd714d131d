// Sessions whose layers do not get the same: every allocator of the registry, both orders of reading, every kind of
// budget.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "door.h"
#include "kedge/policy.h"
#include "support/oracle.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace kedge::test {
namespace {

constexpr int kLayers = 5;

std::vector<std::string> all_allocators() {
  std::vector<std::string> names;
  for (const PolicyMethod& method : list_policies()) {
    if (method.role == "allocator")
      names.push_back(method.name);
  }
  return names;
}

std::vector<int64_t> rows_per_layer(const Session& session) {
  std::vector<int64_t> rows;
  for (const auto& layer : session.kv_map().layers) {
    rows.push_back(0);
    for (const auto& head : layer)
      rows.back() += static_cast<int64_t>(head.size());
  }
  return rows;
}

void expect_sound(const Session& session, const std::string& where) {
  const Stats stats = session.stats();
  EXPECT_LE(stats.kv_peak_bytes, stats.kv_budget_bytes) << where;
  int64_t rows = 0;
  for (const auto& layer : session.kv_map().layers) {
    for (const auto& head : layer) {
      ASSERT_FALSE(head.empty()) << where;
      rows += static_cast<int64_t>(head.size());
      EXPECT_TRUE(std::ranges::adjacent_find(head, std::greater_equal<>()) == head.end()) << where;
      EXPECT_EQ(head.back(), session.n_tokens() - 1) << where << ": the newest row is held";
    }
  }
  EXPECT_EQ(rows, stats.kv_rows) << where;
  EXPECT_EQ(rows + stats.evicted_rows, session.n_tokens() * kLayers * 2) << where;
  EXPECT_TRUE(std::ranges::all_of(session.logits(), [](float v) { return std::isfinite(v); })) << where;
}

class TinyLayers : public testing::Test {
 protected:
  void SetUp() override {
    write_tiny_model(
        make_tiny_weights({.n_layers = kLayers, .n_heads = 4, .n_kv_heads = 2, .qk_gain = 1.4F, .seed = 3}), path());
    model_ = open_model(path(), 1);
  }
  std::string path() const { return dir_.file("tiny.gguf"); }
  std::unique_ptr<Session> read(const SessionOptions& options, std::span<const Token> prompt) const {
    auto session = open_session(*model_, options);
    must(session->prefill(prompt));
    return session;
  }

  TempDir dir_;
  std::unique_ptr<Model> model_;
};

TEST_F(TinyLayers, EveryAllocatorHoldsEveryBudgetInBothOrders) {
  const std::vector<Token> tokens = random_tokens(760, 3);
  for (const std::string& name : all_allocators()) {
    for (const char* text : {"200KiB", "555555B", "12%", "60%", "90tok"}) {
      for (const PrefillOrder order : {PrefillOrder::automatic, PrefillOrder::chunked}) {
        SessionOptions options =
            session_options({.budget = text, .policy = "andpro/" + name, .prompt = 600, .generated = 160});
        options.order = order;
        const std::string where = name + " at " + text + (order == PrefillOrder::chunked ? ", chunked" : "");
        const auto session = read(options, std::span(tokens).first(600));
        expect_sound(*session, where + ", prompt");
        EXPECT_GT(session->stats().evicted_rows, 0) << where;
        for (size_t i = 600; i < tokens.size(); ++i)
          must(session->decode(tokens[i]));
        expect_sound(*session, where + ", answer");
        // A turn that nobody announced.
        must(session->prefill(random_tokens(300, 4)));
        expect_sound(*session, where + ", next turn");
        for (const Token token : random_tokens(40, 5))
          must(session->decode(token));
        expect_sound(*session, where + ", next answer");
      }
    }
  }
}

TEST_F(TinyLayers, RowBudgetsKeepExactlyWhatTheySayInBothOrders) {
  const std::vector<Token> prompt = random_tokens(500, 4);
  for (const std::string& name : all_allocators()) {
    for (const PrefillOrder order : {PrefillOrder::automatic, PrefillOrder::chunked}) {
      for (const int percent : {10, 25, 50, 90}) {
        SessionOptions options = session_options({.budget = std::to_string(percent) + "%",
                                                  .policy = "snapkv/" + name,
                                                  .prompt = 500,
                                                  .generated = 8,
                                                  .hold_continuation = true});
        options.order = order;
        const auto session = read(options, prompt);
        EXPECT_EQ(session->stats().kv_rows, percent * 5 * kLayers * 2) << name << " " << percent << "%";
      }
    }
  }
}

TEST_F(TinyLayers, OneAndTwoThreadsKeepTheSameRows) {
  const auto two = open_model(path(), 2);
  const std::vector<Token> prompt = random_tokens(400, 2);
  for (const std::string& name : all_allocators()) {
    for (const PrefillOrder order : {PrefillOrder::automatic, PrefillOrder::chunked}) {
      SessionOptions options =
          session_options({.budget = "30%", .policy = "andpro/" + name, .prompt = 400, .generated = 70});
      options.order = order;
      const auto a = open_session(*model_, options);
      const auto b = open_session(*two, options);
      const auto c = open_session(*model_, options);
      must(b->prefill(prompt));
      EXPECT_EQ(greedy(*a, prompt, 70), greedy(*c, prompt, 70)) << name;
      EXPECT_EQ(a->kv_map().layers, c->kv_map().layers) << name;
      const auto d = read(options, prompt);
      EXPECT_EQ(b->kv_map().layers, d->kv_map().layers) << name;
      EXPECT_EQ(logits_of(*b), logits_of(*d)) << name;
    }
  }
}

TEST_F(TinyLayers, ABudgetForEverythingChangesNoBit) {
  const std::vector<Token> prompt = random_tokens(200, 1);
  const auto plain = read(session_options({.policy = "none", .prompt = 200}), prompt);
  const std::vector<float> expected = logits_of(*plain);
  for (const std::string& name : all_allocators()) {
    for (const char* text : {"8MiB", "100%", "260tok"}) {
      const auto session =
          read(session_options({.budget = text, .policy = "andpro/" + name, .prompt = 200, .generated = 20}), prompt);
      EXPECT_EQ(logits_of(*session), expected) << name << " " << text;
      for (int i = 0; i < 20; ++i)
        must(session->decode(i));
      EXPECT_EQ(session->stats().evicted_rows, 0) << name << " " << text;
    }
  }
}

TEST_F(TinyLayers, LayersDifferWhereTheAllocatorSaysSo) {
  const std::vector<Token> prompt = random_tokens(600, 6);
  const auto rows = [&](const std::string& allocator) {
    return rows_per_layer(*read(session_options({.budget = "20%",
                                                 .policy = "snapkv:recent=8/" + allocator,
                                                 .prompt = 600,
                                                 .generated = 8,
                                                 .hold_continuation = true}),
                                prompt));
  };
  // 120 rows a head, 9 of them fixed: 111 a head, times 2 heads and 1.95 .. 0.05.
  const std::vector<int64_t> pyramid = {451, 345, 240, 135, 29};
  const std::vector<int64_t> got = rows("pyramid");
  for (size_t l = 0; l < pyramid.size(); ++l)
    EXPECT_NEAR(static_cast<double>(got[l]), static_cast<double>(pyramid[l]), 2) << l;
  const std::vector<int64_t> named = rows("retention:start=1,end=1,layers=2:4");
  EXPECT_GT(named[2], 2 * named[1]);
  EXPECT_NEAR(static_cast<double>(named[0]), static_cast<double>(named[4]), 1);
  for (const char* equal : {"uniform", "pooled", "anchor", "pyramid:beta=1"}) {
    for (const int64_t one : rows(equal))
      EXPECT_EQ(one, 240) << equal;
  }
  for (const char* shared : {"pooled-all", "error", "entropy", "error-layers"}) {
    const std::vector<int64_t> own = rows(shared);
    EXPECT_NE(std::set<int64_t>(own.begin(), own.end()).size(), 1U) << shared;
  }
}

// The path of fork() is that of reading.
TEST_F(TinyLayers, AForkSharesAsReadingDoes) {
  const std::vector<Token> prompt = random_tokens(400, 7);
  for (const char* policy :
       {"snapkv:recent=16/pooled-all", "snapkv:recent=16/error", "andpro:recent=20/entropy",
        "andpro:chunk=1,recent=20/pooled-all:floor=0.2", "snapkv:recent=16/fastgen", "andpro:recent=16/error-layers"}) {
    SessionOptions options =
        session_options({.budget = "15%", .policy = policy, .prompt = 400, .generated = 8, .hold_continuation = true});
    const auto joined = read(options, prompt);
    SessionOptions full = session_options({.policy = "none", .prompt = 400});
    full.n_observed = *observed_rows(policy);
    const auto parent = read(full, prompt);
    const Result<std::unique_ptr<Session>> forked = parent->fork(options);
    ASSERT_TRUE(forked.ok()) << policy << ": " << forked.error().message;
    EXPECT_EQ((*forked)->kv_map().layers, joined->kv_map().layers) << policy;
    EXPECT_EQ(joined->stats().kv_rows, 60 * kLayers * 2) << policy;
    for (const auto& layer : joined->kv_map().layers) {
      for (const auto& head : layer) {
        const std::set<int32_t> held(head.begin(), head.end());
        for (int32_t p = 384; p < 400; ++p)
          EXPECT_TRUE(held.contains(p)) << policy << " lost recent " << p;
      }
    }
  }
}

TEST_F(TinyLayers, ATimeLimitFallsBackAndHoldsTheBudget) {
  for (const std::string& name : all_allocators()) {
    SessionOptions options =
        session_options({.budget = "20%", .policy = "andpro/" + name, .prompt = 500, .generated = 8});
    options.policy_time_limit_ms = 1e-6;
    const auto session = read(options, random_tokens(500, 13));
    EXPECT_GT(session->stats().policy_fallbacks, 0) << name;
    expect_sound(*session, name + " after fallbacks");
  }
}

TEST_F(TinyLayers, StoppedWhileReadingStaysUsable) {
  const std::vector<Token> prompt = random_tokens(600, 12);
  for (const std::string& name : all_allocators()) {
    for (const int allowed : {1, 7, 13}) {
      SessionOptions options =
          session_options({.budget = "300KiB", .policy = "andpro/" + name, .prompt = 600, .generated = 50});
      options.order = PrefillOrder::chunked;
      const auto session = open_session(*model_, options);
      int calls = 0;
      const Status status = session->prefill(prompt, [&](int64_t, int64_t) { return calls++ < allowed; });
      ASSERT_FALSE(status.ok()) << name;
      EXPECT_EQ(status.error().code, ErrorCode::cancelled);
      must(session->prefill(std::span(prompt).subspan(static_cast<size_t>(session->n_tokens()))));
      for (int i = 0; i < 50; ++i)
        must(session->decode(i));
      EXPECT_LE(session->stats().kv_peak_bytes, session->stats().kv_budget_bytes) << name;
      EXPECT_EQ(session->n_tokens(), 650);
    }
  }
}

}  // namespace
}  // namespace kedge::test
