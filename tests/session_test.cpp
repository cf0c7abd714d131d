// Sessions through the public door: budgets, determinism, kept positions, small prompts, cancellation, misuse.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "door.h"
#include "kedge/policy.h"
#include "support/kl.h"
#include "support/oracle.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace kedge::test {
namespace {

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

bool all_finite(std::span<const float> x) {
  return std::ranges::all_of(x, [](float v) { return std::isfinite(v); });
}

// Every step's invariants: bytes, and a map whose positions ascend, are inside the timeline and, where the policy
// protects recent rows or ranks by age, end with the newest token.
void expect_sound(const Session& session, const std::string& where) {
  const Stats stats = session.stats();
  EXPECT_LE(stats.kv_peak_bytes, stats.kv_budget_bytes) << where;
  EXPECT_LE(stats.kv_live_bytes, stats.kv_peak_bytes) << where;
  const bool keeps_newest = stats.policy.find("recent=0") == std::string::npos || where.starts_with("recent") ||
                            where.starts_with("streaming");
  const KvMap map = session.kv_map();
  EXPECT_EQ(map.n_tokens, session.n_tokens()) << where;
  int64_t rows = 0;
  for (const auto& layer : map.layers) {
    for (const auto& head : layer) {
      ASSERT_FALSE(head.empty()) << where;
      rows += static_cast<int64_t>(head.size());
      EXPECT_TRUE(std::ranges::adjacent_find(head, std::greater_equal<>()) == head.end()) << where << ": not ascending";
      EXPECT_GE(head.front(), 0) << where;
      EXPECT_LT(head.back(), session.n_tokens()) << where;
      if (keeps_newest) {
        EXPECT_EQ(head.back(), session.n_tokens() - 1) << where << ": the newest row is held";
      }
    }
  }
  EXPECT_EQ(rows, stats.kv_rows) << where;
  EXPECT_EQ(rows + stats.evicted_rows,
            session.n_tokens() * static_cast<int64_t>(map.layers.size() * map.layers[0].size()))
      << where;
}

class TinySession : public testing::Test {
 protected:
  void SetUp() override {
    write_tiny_model(make_tiny_weights({.n_layers = 3, .n_heads = 4, .n_kv_heads = 2, .qk_gain = 1.4F, .seed = 3}),
                     path());
    model_ = open_model(path(), 1);
  }
  std::string path() const { return dir_.file("tiny.gguf"); }
  std::vector<std::string> all_scorers() const {
    std::vector<std::string> names = evicting_scorers();
    names.emplace_back("none");
    return names;
  }

  TempDir dir_;
  std::unique_ptr<Model> model_;
};

TEST_F(TinySession, TheRegistryHasTheMethodsAndResolves) {
  const std::vector<std::string> names = evicting_scorers();
  for (const char* name : {"andpro", "snapkv", "streaming", "recent", "random"}) {
    EXPECT_EQ(std::ranges::count(names, name), 1) << name;
    const Result<std::string> resolved = resolve_policy(name);
    ASSERT_TRUE(resolved.ok());
    const Result<std::string> again = resolve_policy(*resolved);
    ASSERT_TRUE(again.ok()) << *resolved;
    EXPECT_EQ(*again, *resolved);
  }
}

TEST_F(TinySession, ABudgetThatHoldsEverythingChangesNoBit) {
  const std::vector<Token> prompt = random_tokens(300, 1);
  const auto plain = open_session(*model_, session_options({.policy = "none", .prompt = 300}));
  must(plain->prefill(prompt));
  std::vector<std::vector<float>> expected = {logits_of(*plain)};
  for (int i = 0; i < 20; ++i) {
    must(plain->decode(argmax(plain->logits())));
    expected.push_back(logits_of(*plain));
  }
  for (const std::string& policy : all_scorers()) {
    for (const char* text : {"8MiB", "100%", "320tok"}) {
      const auto session =
          open_session(*model_, session_options({.budget = text, .policy = policy, .prompt = 300, .generated = 20}));
      must(session->prefill(prompt));
      EXPECT_TRUE(same_bits(session->logits(), expected[0])) << policy << " " << text;
      for (size_t i = 0; i < 20; ++i) {
        must(session->decode(argmax(session->logits())));
        ASSERT_TRUE(same_bits(session->logits(), expected[i + 1]))
            << policy << " " << text << " after " << i << " tokens";
      }
      EXPECT_EQ(session->stats().evicted_rows, 0) << policy << " " << text;
      EXPECT_EQ(session->stats().keep, 1.0) << policy << " " << text;
      EXPECT_LE(session->stats().kv_peak_bytes, session->stats().kv_budget_bytes);
    }
  }
}

TEST_F(TinySession, OneAndTwoThreadsChooseTheSameRowsAndTokens) {
  const auto one = open_model(path(), 1);
  const auto two = open_model(path(), 2);
  const std::vector<Token> prompt = random_tokens(500, 2);
  for (const std::string& policy : evicting_scorers()) {
    for (const char* text : {"30%", "220KiB"}) {
      const SessionOptions options =
          session_options({.budget = text, .policy = policy, .prompt = 500, .generated = 80});
      const auto a = open_session(*one, options);
      const auto b = open_session(*two, options);
      EXPECT_EQ(greedy(*a, prompt, 80), greedy(*b, prompt, 80)) << policy << " " << text;
      EXPECT_EQ(a->kv_map().layers, b->kv_map().layers) << policy << " " << text;
      EXPECT_GT(a->stats().evicted_rows, 0) << policy << " " << text;
    }
  }
}

TEST_F(TinySession, TheBudgetHoldsAfterEveryStepOfEveryPolicy) {
  const std::vector<Token> tokens = random_tokens(900, 3);
  for (const std::string& policy : evicting_scorers()) {
    for (const char* text : {"96KiB", "120KiB", "333333B", "10%", "50%", "100tok"}) {
      for (const PrefillOrder order : {PrefillOrder::automatic, PrefillOrder::chunked}) {
        SessionOptions options = session_options({.budget = text, .policy = policy, .prompt = 700, .generated = 200});
        options.order = order;
        const std::string where = policy + " at " + text;
        const auto session = open_session(*model_, options);
        must(session->prefill(std::span(tokens).first(700), [&](int64_t, int64_t) {
          EXPECT_LE(session->stats().kv_peak_bytes, session->stats().kv_budget_bytes) << where;
          return true;
        }));
        expect_sound(*session, where + ", prompt");
        EXPECT_GT(session->stats().evicted_rows, 0) << where;
        for (size_t i = 700; i < tokens.size(); ++i) {
          must(session->decode(tokens[i]));
          if (i % 7 == 0 || i + 1 == tokens.size())
            expect_sound(*session, where + ", token " + std::to_string(i));
        }
        EXPECT_TRUE(all_finite(session->logits())) << where;
        EXPECT_EQ(session->n_tokens(), 900);
        if (options.budget.kind == Budget::Kind::bytes) {
          EXPECT_LE(session->stats().kv_budget_bytes, static_cast<int64_t>(options.budget.value)) << where;
        }
      }
    }
  }
}

// What the plan accepts, the session can do: a last chunk of any length, an answer of any length. Many layers: what a
// layer is given too much adds up.
TEST_F(TinySession, APlanThatWasAcceptedWorks) {
  write_tiny_model(make_tiny_weights({.n_layers = 20, .n_heads = 3, .n_kv_heads = 3, .n_embd = 64, .n_ff = 64}),
                   dir_.file("deep.gguf"));
  const auto deep = open_model(dir_.file("deep.gguf"), 1);
  for (const char* text : {"1000KiB", "1400KiB", "2MiB"}) {
    for (const int n : {400, 555, 601}) {
      for (const int generated : {1, 4, 16, 64}) {
        const auto session = open_session(
            *deep, session_options({.budget = text, .policy = "andpro", .prompt = n, .generated = generated}));
        const std::string where =
            std::string(text) + ", " + std::to_string(n) + " tokens, then " + std::to_string(generated);
        Status status = session->prefill(random_tokens(n, 30));
        for (int i = 0; status.ok() && i < generated; ++i) {
          status = session->decode(argmax(session->logits()));
        }
        EXPECT_TRUE(status.ok()) << where << ": " << (status.ok() ? "" : status.error().message);
        if (status.ok()) {
          expect_sound(*session, where);
        }
      }
    }
  }
}

TEST_F(TinySession, SharesAndRowsKeepWhatTheySay) {
  const std::vector<Token> prompt = random_tokens(800, 4);
  for (const std::string& policy : evicting_scorers()) {
    for (const double keep : {0.1, 0.25, 0.5}) {
      const std::string text = std::to_string(static_cast<int>(keep * 100)) + "%";
      const auto session = open_session(
          *model_, session_options(
                       {.budget = text, .policy = policy, .prompt = 800, .generated = 8, .hold_continuation = true}));
      must(session->prefill(prompt));
      EXPECT_EQ(session->stats().kv_rows, std::llround(keep * 800) * 3 * 2) << policy << " " << text;
      EXPECT_NEAR(session->stats().keep, keep, 1e-9) << policy << " " << text;
    }
  }
}

TEST_F(TinySession, SinksAndRecentRowsStay) {
  const std::vector<Token> prompt = random_tokens(600, 5);
  for (const std::string& policy : evicting_scorers()) {
    SessionOptions options =
        session_options({.budget = "20%", .policy = policy, .prompt = 600, .generated = 8, .hold_continuation = true});
    options.sinks = "5";
    options.recent = "24";
    const auto session = open_session(*model_, options);
    must(session->prefill(prompt));
    for (const auto& layer : session->kv_map().layers) {
      for (const auto& head : layer) {
        const std::set<int32_t> held(head.begin(), head.end());
        for (int32_t p = 0; p < 5; ++p)
          EXPECT_TRUE(held.contains(p)) << policy << " lost sink " << p;
        for (int32_t p = 576; p < 600; ++p)
          EXPECT_TRUE(held.contains(p)) << policy << " lost recent " << p;
      }
    }
  }
}

TEST_F(TinySession, PooledHeadsAreRaggedAndUniformOnesEqual) {
  const std::vector<Token> prompt = random_tokens(600, 6);
  const auto lengths_differ = [&](const std::string& policy) {
    const auto session = open_session(
        *model_,
        session_options({.budget = "20%", .policy = policy, .prompt = 600, .generated = 8, .hold_continuation = true}));
    must(session->prefill(prompt));
    int ragged = 0;
    for (const auto& layer : session->kv_map().layers)
      ragged += layer[0].size() != layer[1].size() ? 1 : 0;
    return ragged;
  };
  EXPECT_GE(lengths_differ("andpro/pooled"), 2);
  EXPECT_EQ(lengths_differ("andpro/uniform"), 0);
  EXPECT_EQ(lengths_differ("streaming/uniform"), 0);
}

TEST_F(TinySession, RandomFollowsItsSeed) {
  const std::vector<Token> prompt = random_tokens(400, 7);
  const auto kept = [&](uint64_t seed) {
    SessionOptions options = session_options({.budget = "20%", .policy = "random", .prompt = 400, .generated = 4});
    options.seed = seed;
    const auto session = open_session(*model_, options);
    must(session->prefill(prompt));
    return session->kv_map().layers;
  };
  EXPECT_EQ(kept(1), kept(1));
  EXPECT_NE(kept(1), kept(2));
  const auto map = kept(1);
  EXPECT_NE(map[0][0], map[1][0]) << "layers draw differently";
}

TEST_F(TinySession, OneAndTwoTokenPromptsUnderTinyBudgets) {
  for (const std::string& policy : evicting_scorers()) {
    for (const int n : {1, 2, 3}) {
      for (const char* text : {"96KiB", "1%", "1tok", "50%"}) {
        const std::vector<Token> prompt = random_tokens(n, 8);
        const auto full = open_session(*model_, session_options({.policy = "none", .prompt = n}));
        const auto session =
            open_session(*model_, session_options({.budget = text, .policy = policy, .prompt = n, .generated = 200}));
        const std::string where = policy + " " + text + ", " + std::to_string(n) + " tokens";
        must(full->prefill(prompt));
        must(session->prefill(prompt));
        EXPECT_TRUE(same_bits(session->logits(), full->logits())) << where << ": a prompt that fits is not touched";
        for (int i = 0; i < 200; ++i) {
          must(session->decode(argmax(session->logits())));
          ASSERT_TRUE(all_finite(session->logits())) << where << " at " << i;
        }
        expect_sound(*session, where);
      }
    }
  }
}

TEST_F(TinySession, UnannouncedPromptsHoldTheBudgetToo) {
  for (const std::string& policy : evicting_scorers()) {
    const auto session = open_session(*model_, session_options({.budget = "160KiB", .policy = policy}));
    for (uint32_t turn = 0; turn < 5; ++turn) {
      must(session->prefill(random_tokens(30 + 90 * static_cast<int>(turn), turn)));
      expect_sound(*session, policy + ", turn " + std::to_string(turn));
      for (int i = 0; i < 30; ++i)
        must(session->decode(argmax(session->logits())));
      expect_sound(*session, policy + ", answer " + std::to_string(turn));
    }
    EXPECT_GT(session->stats().evicted_rows, 0);
  }
}

// Three tokens after 30: each reads the rows so far and its own, in 3 layers of 2 kv heads of 64 f16 values, K and V.
TEST_F(TinySession, CountsTheRowsThatDecodingReads) {
  const auto session = open_session(*model_, session_options({.policy = "none", .prompt = 30}));
  must(session->prefill(random_tokens(30, 1)));
  EXPECT_EQ(session->stats().decode_attention_row_bytes, 0);
  EXPECT_EQ(session->stats().decode_attention_seconds, 0);
  for (const Token token : random_tokens(3, 2))
    must(session->decode(token));
  const Stats stats = session->stats();
  EXPECT_EQ(stats.decode_attention_row_bytes, (31 + 32 + 33) * 3 * 2 * 64 * 2 * 2);
  EXPECT_GT(stats.decode_attention_seconds, 0);
  EXPECT_LT(stats.decode_attention_seconds, stats.decode_seconds);
}

TEST_F(TinySession, SessionsDoNotTouchEachOther) {
  const std::vector<Token> first = random_tokens(300, 9);
  const std::vector<Token> second = random_tokens(280, 10);
  const SessionOptions options = session_options({.budget = "25%", .policy = "andpro", .prompt = 300, .generated = 40});
  const auto alone = open_session(*model_, options);
  const std::vector<Token> expected = greedy(*alone, first, 40);
  const auto a = open_session(*model_, options);
  const auto b = open_session(*model_, session_options({.budget = "160KiB", .policy = "snapkv", .prompt = 280}));
  must(a->prefill(first));
  must(b->prefill(second));
  std::vector<Token> out = {argmax(a->logits())};
  while (out.size() < 40) {
    must(a->decode(out.back()));
    must(b->decode(argmax(b->logits())));
    out.push_back(argmax(a->logits()));
  }
  EXPECT_EQ(out, expected);
}

TEST_F(TinySession, CancelledWithoutEvictionIsAsBefore) {
  const std::vector<Token> prompt = random_tokens(400, 11);
  const auto fresh = open_session(*model_, session_options({.policy = "none", .prompt = 400}));
  must(fresh->prefill(prompt));
  const auto session = open_session(*model_, session_options({.policy = "none", .prompt = 400}));
  for (const int allowed : {0, 1, 2}) {
    int calls = 0;
    const Status status = session->prefill(prompt, [&](int64_t, int64_t) { return calls++ < allowed; });
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::cancelled);
    EXPECT_EQ(session->n_tokens(), 0);
    EXPECT_EQ(session->stats().kv_rows, 0);
  }
  must(session->prefill(prompt));
  EXPECT_TRUE(same_bits(session->logits(), fresh->logits()));
}

TEST_F(TinySession, CancelledBetweenChunksStaysUsable) {
  const std::vector<Token> prompt = random_tokens(600, 12);
  for (const std::string& policy : evicting_scorers()) {
    for (const int allowed : {1, 4, 8, 13}) {
      SessionOptions options = session_options({.budget = "200KiB", .policy = policy, .prompt = 600, .generated = 50});
      options.order = PrefillOrder::chunked;
      const auto session = open_session(*model_, options);
      int calls = 0;
      const Status status = session->prefill(prompt, [&](int64_t, int64_t) { return calls++ < allowed; });
      ASSERT_FALSE(status.ok()) << policy;
      EXPECT_EQ(status.error().code, ErrorCode::cancelled);
      for (const auto& layer : session->kv_map().layers) {
        for (const auto& head : layer) {
          EXPECT_TRUE(head.empty() || head.back() < session->n_tokens()) << policy << ": rows of the abandoned chunk";
        }
      }
      must(session->prefill(std::span(prompt).subspan(static_cast<size_t>(session->n_tokens()))));
      EXPECT_EQ(session->n_tokens(), 600);
      for (int i = 0; i < 50; ++i)
        must(session->decode(argmax(session->logits())));
      EXPECT_TRUE(all_finite(session->logits())) << policy;
      EXPECT_LE(session->stats().kv_peak_bytes, session->stats().kv_budget_bytes) << policy;
    }
  }
}

TEST_F(TinySession, ATimeLimitFallsBackAndIsCounted) {
  SessionOptions options = session_options({.budget = "20%", .policy = "andpro", .prompt = 500, .generated = 8});
  options.policy_time_limit_ms = 1e-6;
  const auto session = open_session(*model_, options);
  must(session->prefill(random_tokens(500, 13)));
  EXPECT_GT(session->stats().policy_fallbacks, 0);
  expect_sound(*session, "after fallbacks");
  options.policy_time_limit_ms = 0;
  const auto unhurried = open_session(*model_, options);
  must(unhurried->prefill(random_tokens(500, 13)));
  EXPECT_EQ(unhurried->stats().policy_fallbacks, 0);
}

TEST_F(TinySession, Bf16RowsStayCloseToF16) {
  const std::vector<Token> prompt = random_tokens(200, 14);
  SessionOptions options = session_options({.policy = "none", .prompt = 200});
  const auto f16 = open_session(*model_, options);
  options.cache_type_k = options.cache_type_v = "bf16";
  const auto bf16 = open_session(*model_, options);
  must(f16->prefill(prompt));
  must(bf16->prefill(prompt));
  Divergence d;
  d.add(f16->logits(), bf16->logits());
  for (const Token t : random_tokens(20, 15)) {
    must(f16->decode(t));
    must(bf16->decode(t));
    d.add(f16->logits(), bf16->logits());
  }
  EXPECT_LT(d.mean_kld(), 1e-4);
  EXPECT_GT(d.max_abs(), 0.0) << "the type was not used";
}

// ---- mistakes of the world ----

void expect_error(const Result<std::unique_ptr<Session>>& result, ErrorCode code,
                  std::initializer_list<const char*> words) {
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, code) << result.error().message;
  EXPECT_EQ(result.error().message.find('\n'), std::string::npos);
  for (const char* word : words)
    EXPECT_NE(result.error().message.find(word), std::string::npos) << word << " in: " << result.error().message;
}

TEST_F(TinySession, ImpossibleBudgetsAreRefusedWithTheArithmeticAndTheLeastThatWorks) {
  const auto refused =
      Session::create(*model_, session_options({.budget = "20KiB", .policy = "andpro", .prompt = 500, .generated = 8}));
  expect_error(refused, ErrorCode::budget_impossible, {"20KiB", "KiB"});
  // The smallest budget it names must work, and do what it promises.
  const std::string& message = refused.error().message;
  const size_t unit = message.rfind("KiB");
  const size_t begin = message.find_last_not_of("0123456789", unit - 1) + 1;
  const std::string least = message.substr(begin, unit - begin) + "KiB";
  const auto session =
      open_session(*model_, session_options({.budget = least, .policy = "andpro", .prompt = 500, .generated = 8}));
  must(session->prefill(random_tokens(500, 16)));
  for (int i = 0; i < 8; ++i)
    must(session->decode(argmax(session->logits())));
  expect_sound(*session, least);
  expect_error(
      Session::create(*model_, session_options({.budget = "64KiB", .policy = "none", .prompt = 500, .generated = 8})),
      ErrorCode::budget_impossible, {"64KiB"});
}

TEST_F(TinySession, BudgetTextsThatMeanNothing) {
  for (const char* text :
       {"", "0", "0MiB", "-1MiB", "12", "x", "12XB", "101%", "0%", "nan%", "inf", "1e400MiB", "-5tok", "0tok", "MiB"}) {
    const Result<Budget> parsed = parse_budget(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.error().code, ErrorCode::usage) << text;
    EXPECT_FALSE(parsed.error().message.empty());
  }
}

TEST_F(TinySession, UnknownPoliciesAndOptionsNameTheNearest) {
  const auto with = [&](const std::string& policy) {
    return Session::create(*model_, session_options({.budget = "25%", .policy = policy, .prompt = 100}));
  };
  expect_error(with("andpor"), ErrorCode::usage, {"andpor", "andpro"});
  expect_error(with("andpro:windw=3"), ErrorCode::usage, {"windw", "window"});
  expect_error(with("andpro/pooledd"), ErrorCode::usage, {"pooledd", "pooled"});
  expect_error(with("andpro:window=-4"), ErrorCode::usage, {"window"});
  expect_error(with("andpro:window=x"), ErrorCode::usage, {"window"});
}

TEST_F(TinySession, OverflowsAreAnsweredAsAsked) {
  SessionOptions options = session_options({.budget = "160KiB", .policy = "andpro", .prompt = 500, .generated = 8});
  options.overflow = Overflow::error;
  expect_error(Session::create(*model_, options), ErrorCode::context_too_long, {"500"});
  options.overflow = Overflow::truncate;
  const auto session = open_session(*model_, options);
  must(session->prefill(random_tokens(500, 17)));
  EXPECT_LT(session->n_tokens(), 500);
  EXPECT_GT(session->n_tokens(), 16);
  EXPECT_EQ(session->stats().evicted_rows, 0);
  EXPECT_LE(session->stats().kv_peak_bytes, session->stats().kv_budget_bytes);
}

TEST_F(TinySession, ContextAndTokensAreChecked) {
  SessionOptions options = session_options({.policy = "none", .prompt = 50});
  options.n_ctx = 40;
  const auto session = open_session(*model_, options);
  const Status longer = session->prefill(random_tokens(50, 18));
  ASSERT_FALSE(longer.ok());
  EXPECT_EQ(longer.error().code, ErrorCode::context_too_long);
  EXPECT_NE(longer.error().message.find("50"), std::string::npos);
  EXPECT_NE(longer.error().message.find("40"), std::string::npos);
  EXPECT_FALSE(session->prefill({}).ok());
  EXPECT_FALSE(session->prefill(std::vector<Token>{-1}).ok());
  EXPECT_FALSE(session->prefill(std::vector<Token>{100000}).ok());
  EXPECT_FALSE(session->decode(-1).ok());
  EXPECT_FALSE(session->score(std::vector<Token>{5, -7}, [](int64_t, std::span<const float>) {}).ok());
  EXPECT_EQ(session->n_tokens(), 0);
  must(session->prefill(random_tokens(40, 19)));
  EXPECT_FALSE(session->decode(1).ok());
  EXPECT_EQ(session->n_tokens(), 40);
}

TEST_F(TinySession, ExplainsABudgetWithoutReading) {
  const Result<BudgetMeaning> meaning =
      explain_budget(*model_, session_options({.budget = "25%", .policy = "andpro", .prompt = 1000, .generated = 24}));
  ASSERT_TRUE(meaning.ok());
  EXPECT_NEAR(meaning->rows_per_head, 256, 24);
  EXPECT_GT(meaning->full_bytes, meaning->budget_bytes / 2);
  EXPECT_FALSE(meaning->plan.empty());
}

}  // namespace
}  // namespace kedge::test
