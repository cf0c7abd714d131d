// Every schedule through the public door: the budget holds, progress is made, threads change nothing, and each does
// what it is for.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "door.h"
#include "kedge/policy.h"
#include "support/kl.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace kedge::test {
namespace {

std::vector<std::string> all_schedules() {
  std::vector<std::string> names;
  for (const PolicyMethod& method : list_policies()) {
    if (method.role == "schedule")
      names.push_back(method.name);
  }
  return names;
}

class TinySchedule : public testing::Test {
 protected:
  void SetUp() override {
    write_tiny_model(make_tiny_weights({.n_layers = 6, .n_heads = 4, .n_kv_heads = 2, .qk_gain = 1.4F, .seed = 5}),
                     path());
    model_ = open_model(path(), 1);
  }
  std::string path() const { return dir_.file("tiny.gguf"); }

  static void expect_inside(const Session& session, const std::string& where) {
    const Stats stats = session.stats();
    ASSERT_LE(stats.kv_peak_bytes, stats.kv_budget_bytes) << where;
    for (const auto& layer : session.kv_map().layers) {
      for (const auto& head : layer)
        ASSERT_FALSE(head.empty()) << where;
    }
    for (const float logit : session.logits())
      ASSERT_TRUE(std::isfinite(logit)) << where;
  }

  TempDir dir_;
  std::unique_ptr<Model> model_;
};

TEST_F(TinySchedule, EveryScheduleHoldsTheBudgetAndGoesOn) {
  const std::vector<Token> tokens = random_tokens(1000, 1);
  for (const std::string& schedule : all_schedules()) {
    for (const char* scorer : {"andpro", "streaming"}) {
      const bool is_cheap = std::string(scorer) == "streaming";
      for (const char* text : {"700KiB", is_cheap ? "25%" : "220KiB"}) {
        const std::string policy = std::string(scorer) + "/" + schedule;
        const std::string where = policy + " at " + text;
        const auto session = open_session(*model_, session_options({.budget = text, .policy = policy, .prompt = 500}));
        must(session->prefill(std::span(tokens).first(500)));
        expect_inside(*session, where + ", prompt");
        for (size_t i = 500; i < 600; ++i) {
          must(session->decode(tokens[i]));
          ASSERT_LE(session->stats().kv_peak_bytes, session->stats().kv_budget_bytes) << where;
        }
        const Status second = session->prefill(std::span(tokens).subspan(600, 300));  // into a running session
        ASSERT_TRUE(second.ok()) << where << ": " << second.error().message;
        expect_inside(*session, where + ", second text");
        for (size_t i = 900; i < 990; ++i)
          must(session->decode(tokens[i]));
        expect_inside(*session, where + ", end");
        EXPECT_EQ(session->n_tokens(), 990) << where;
        EXPECT_GT(session->stats().evicted_rows, 0) << where;
      }
    }
  }
}

TEST_F(TinySchedule, ThreadsChangeNothing) {
  const auto one = open_model(path(), 1);
  const auto two = open_model(path(), 2);
  const std::vector<Token> prompt = random_tokens(400, 2);
  for (const std::string& schedule : all_schedules()) {
    const SessionOptions options = session_options({.budget = "220KiB", .policy = "andpro/" + schedule, .prompt = 400});
    const auto a = open_session(*one, options);
    const auto b = open_session(*two, options);
    EXPECT_EQ(greedy(*a, prompt, 150), greedy(*b, prompt, 150)) << schedule;
    EXPECT_EQ(a->kv_map().layers, b->kv_map().layers) << schedule;
  }
}

// Layers that take turns: a token carries the eviction of at most ceil(layers / n) of them.
TEST_F(TinySchedule, StaggeredTokensCarryFewLayers) {
  const std::vector<Token> tokens = random_tokens(700, 3);
  const auto most_at_once = [&](const std::string& policy) {
    const auto session = open_session(*model_, session_options({.budget = "40%", .policy = policy, .prompt = 400}));
    must(session->prefill(std::span(tokens).first(400)));
    int64_t most = 0;
    int64_t before = session->stats().evictions;
    for (size_t i = 400; i < tokens.size(); ++i) {
      must(session->decode(tokens[i]));
      most = std::max(most, session->stats().evictions - before);
      before = session->stats().evictions;
    }
    EXPECT_GT(before, 6 * 6) << policy << ": evictions went on";
    return most;
  };
  EXPECT_EQ(most_at_once("andpro/every:n=16"), 1);
  EXPECT_EQ(most_at_once("andpro/every:n=16,stagger=off"), 6);
  EXPECT_EQ(most_at_once("andpro/every:n=3"), 2);
}

TEST_F(TinySchedule, AnAnswerThatFitsIsNotEvictedForItsTurn) {
  const std::vector<Token> tokens = random_tokens(420, 4);
  const auto session = open_session(
      *model_, session_options({.budget = "40%", .policy = "andpro/every:n=64", .prompt = 400, .generated = 20}));
  must(session->prefill(std::span(tokens).first(400)));
  const int64_t evictions = session->stats().evictions;
  for (size_t i = 400; i < 420; ++i)
    must(session->decode(tokens[i]));
  EXPECT_EQ(session->stats().evictions, evictions);
}

TEST_F(TinySchedule, HysteresisEvictsLessOften) {
  const std::vector<Token> tokens = random_tokens(800, 5);
  const auto evictions = [&](const std::string& policy) {
    const auto session = open_session(*model_, session_options({.budget = "600KiB", .policy = policy, .prompt = 400}));
    must(session->prefill(std::span(tokens).first(400)));
    const int64_t before = session->stats().evictions;
    for (size_t i = 400; i < tokens.size(); ++i)
      must(session->decode(tokens[i]));
    return session->stats().evictions - before;
  };
  const int64_t often = evictions("andpro/every:n=8");
  const int64_t rarely = evictions("andpro/every:n=8,low=0.7");
  EXPECT_GT(rarely, 0);
  EXPECT_LT(rarely, often / 2);
}

TEST_F(TinySchedule, AtAppendUsesEveryRowOfTheBudget) {
  const std::vector<Token> tokens = random_tokens(600, 6);
  const auto session =
      open_session(*model_, session_options({.budget = "300KiB", .policy = "andpro/at-append", .prompt = 400}));
  must(session->prefill(std::span(tokens).first(400)));
  for (size_t i = 400; i < tokens.size(); ++i) {
    must(session->decode(tokens[i]));
    if (i > 410) {
      ASSERT_GT(session->stats().fill, 0.95) << i;
    }
  }
}

TEST_F(TinySchedule, PressureFreesMemoryAndCutsDeeperWhenItIsHigh) {
  const std::vector<Token> tokens = random_tokens(900, 7);
  const std::string policy = "andpro/pressure:n=16,light=0.7,medium=0.85,heavy=0.95,gap=0.1";
  const auto session = open_session(*model_, session_options({.budget = "600KiB", .policy = policy, .prompt = 500}));
  must(session->prefill(std::span(tokens).first(500)));
  const auto used = [&] {
    const Stats stats = session->stats();
    return static_cast<double>(stats.kv_live_bytes) / static_cast<double>(stats.kv_budget_bytes);
  };
  EXPECT_LT(used(), 0.65);
  for (size_t i = 500; i < 700; ++i) {
    must(session->decode(tokens[i]));
    ASSERT_LT(used(), 0.86) << i;
  }
  // What fits is read without a cut; the next token finds a full store.
  size_t next = 700;
  while (used() < 0.88 && next < 880) {
    must(session->prefill(std::span(tokens).subspan(next, 20)));
    next += 20;
  }
  ASSERT_GT(used(), 0.85);
  must(session->decode(tokens[next]));
  EXPECT_LT(used(), 0.6);
}

// The share follows the measure: a schedule that calls everything easy holds less memory than one that calls it hard.
TEST_F(TinySchedule, ContextFreesWhatAnEasyTextDoesNotNeed) {
  const std::vector<Token> tokens = random_tokens(700, 8);
  const auto run = [&](const std::string& options) {
    const auto session = open_session(
        *model_, session_options({.budget = "600KiB", .policy = "andpro/context:" + options, .prompt = 500}));
    must(session->prefill(std::span(tokens).first(500)));
    for (size_t i = 500; i < tokens.size(); ++i)
      must(session->decode(tokens[i]));
    expect_inside(*session, options);
    return session->stats();
  };
  const Stats easy = run("min=0.4,max=0.9,easy=1,hard=1");
  const Stats hard = run("min=0.4,max=0.9,easy=0,hard=0");
  const Stats between = run("min=0.4,max=0.9,easy=0,hard=1");
  const Stats by_error = run("min=0.4,max=0.9,easy=0,hard=1,measure=error");
  EXPECT_FLOAT_EQ(static_cast<float>(easy.budget_share), 0.4F);
  EXPECT_FLOAT_EQ(static_cast<float>(hard.budget_share), 0.9F);
  EXPECT_GT(between.budget_share, 0.4);
  EXPECT_LT(between.budget_share, 0.9);
  EXPECT_NEAR(between.budget_share, 0.4 + 0.5 * between.difficulty, 1e-4);
  EXPECT_GT(by_error.difficulty, 0);
  EXPECT_LT(by_error.difficulty, 1);
  EXPECT_LT(easy.kv_live_bytes, hard.kv_live_bytes * 6 / 10);
  EXPECT_LT(easy.kv_live_bytes, between.kv_live_bytes);
}

TEST_F(TinySchedule, BurstReadsInMoreStepsAndHoldsTheBudget) {
  const std::vector<Token> tokens = random_tokens(1400, 9);
  const auto chunks = [&](const std::string& policy) {
    const auto session = open_session(*model_, session_options({.budget = "700KiB", .policy = policy, .prompt = 400}));
    must(session->prefill(std::span(tokens).first(400)));
    for (size_t i = 400; i < 420; ++i)
      must(session->decode(tokens[i]));
    int64_t n = 0;
    int64_t last = session->n_tokens();
    must(session->prefill(std::span(tokens).subspan(420, 900), [&](int64_t, int64_t) {
      n += session->n_tokens() > last ? 1 : 0;
      last = session->n_tokens();
      return true;
    }));
    expect_inside(*session, policy);
    return n;
  };
  EXPECT_GT(chunks("andpro/burst:steps=4"), chunks("andpro/every"));
}

TEST_F(TinySchedule, ALimitThatCannotBeMetFallsBackEveryTime) {
  const std::vector<Token> tokens = random_tokens(700, 10);
  for (const char* schedule : {"every:n=16", "every:n=16,stagger=off", "at-append"}) {
    SessionOptions options =
        session_options({.budget = "300KiB", .policy = std::string("andpro/") + schedule, .prompt = 400});
    options.policy_time_limit_ms = 1e-6;
    const auto session = open_session(*model_, options);
    must(session->prefill(std::span(tokens).first(400)));
    for (size_t i = 400; i < tokens.size(); ++i)
      must(session->decode(tokens[i]));
    const Stats stats = session->stats();
    EXPECT_EQ(stats.policy_fallbacks, stats.evictions) << schedule;
    EXPECT_GT(stats.policy_fallback_rounds, 0) << schedule;
    EXPECT_LE(stats.policy_fallback_rounds, stats.policy_fallbacks) << schedule;
    expect_inside(*session, schedule);
    for (const auto& layer : session->kv_map().layers) {
      for (const auto& head : layer) {
        EXPECT_EQ(head.front(), 0) << "sinks";
        EXPECT_EQ(head.back(), session->n_tokens() - 1) << "recent rows";
      }
    }
    options.policy_time_limit_ms = 1e6;
    const auto unhurried = open_session(*model_, options);
    must(unhurried->prefill(std::span(tokens).first(400)));
    EXPECT_EQ(unhurried->stats().policy_fallbacks, 0) << schedule;
  }
}

TEST_F(TinySchedule, TimesOfTokensAreReported) {
  const std::vector<Token> tokens = random_tokens(300, 11);
  const auto session = open_session(*model_, session_options({.policy = "none", .prompt = 200}));
  must(session->prefill(std::span(tokens).first(200)));
  EXPECT_EQ(session->stats().decode_max_ms, 0);
  for (size_t i = 200; i < tokens.size(); ++i)
    must(session->decode(tokens[i]));
  const Stats stats = session->stats();
  EXPECT_GT(stats.decode_p50_ms, 0);
  EXPECT_LE(stats.decode_p50_ms, stats.decode_p99_ms);
  EXPECT_LE(stats.decode_p99_ms, stats.decode_max_ms);
  EXPECT_LE(stats.decode_max_ms, stats.decode_seconds * 1000);
  EXPECT_EQ(stats.budget_share, 1);
}

}  // namespace
}  // namespace kedge::test
