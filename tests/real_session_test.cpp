// Sessions of the real model on a real text: eviction that keeps what matters, exactly the same rows for any thread
// count.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>

#include "door.h"
#include "same_future.h"
#include "support/kl.h"
#include "support/real_model.h"
#include "support/temp_dir.h"

namespace kedge::test {
namespace {

class RealSession : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_FALSE(real_model_path().empty()) << "KEDGE_MODEL names no file; `tools/setup --print-env` says where it is";
    const std::string text = real_text();
    ASSERT_GT(text.size(), 100000U) << "no text: KEDGE_TEXT or Debian's developers-reference";
    model_ = open_model(real_model_path());
    tokens_ = model_->tokenize(text, false, false);
  }
  std::span<const Token> window(int64_t begin, int64_t n) const {
    return std::span(tokens_).subspan(static_cast<size_t>(begin), static_cast<size_t>(n));
  }
  // Evicted once after a prompt of 1,024 tokens: logits of the next 128.
  std::vector<std::vector<float>> continuation(int64_t begin, const std::string& budget_text,
                                               const std::string& policy) const {
    const auto session = open_session(
        *model_,
        session_options(
            {.budget = budget_text, .policy = policy, .prompt = 1024, .generated = 128, .hold_continuation = true}));
    must(session->prefill(window(begin, 1024)));
    EXPECT_EQ(session->stats().evicted_rows > 0, !budget_text.empty() && budget_text != "100%");
    return score_all(*session, window(begin + 1024, 128));
  }

  std::unique_ptr<Model> model_;
  std::vector<Token> tokens_;
};

TEST_F(RealSession, EvictionKeepsWhatMatters) {
  const int64_t begin = 17611;
  const auto full = continuation(begin, "", "none");
  const auto kld = [&](const std::string& budget_text, const std::string& policy) {
    const auto rows = continuation(begin, budget_text, policy);
    Divergence d;
    for (size_t i = 0; i < rows.size(); ++i)
      d.add(full[i], rows[i]);
    std::printf("%s at %s: mean KLD %.4f, same top %.3f\n", policy.c_str(), budget_text.c_str(), d.mean_kld(),
                d.same_top());
    return d.mean_kld();
  };
  EXPECT_EQ(kld("100%", "andpro"), 0.0);
  const double random = kld("25%", "random");
  const double andpro = kld("25%", "andpro");
  EXPECT_GT(random, 0.3);
  EXPECT_LT(andpro, random / 3);  // positions after an eviction are right, or this is far off
  EXPECT_LT(kld("25%", "streaming"), random / 2);
  EXPECT_LT(kld("10%", "andpro"), random) << "a tenth chosen well keeps more than a quarter at random";
}

TEST_F(RealSession, ABudgetThatHoldsEverythingChangesNoBit) {
  const auto run = [&](const std::string& budget_text, const std::string& policy) {
    const auto session = open_session(
        *model_, session_options({.budget = budget_text, .policy = policy, .prompt = 300, .generated = 12}));
    std::vector<Token> out = greedy(*session, window(5000, 300), 12);
    EXPECT_EQ(session->stats().evicted_rows, 0);
    return std::pair(out, logits_of(*session));
  };
  const auto full = run("", "none");
  for (const char* policy : {"andpro", "snapkv"}) {
    const auto held = run("16MiB", policy);
    EXPECT_EQ(held.first, full.first) << policy;
    EXPECT_EQ(std::memcmp(held.second.data(), full.second.data(), full.second.size() * sizeof(float)), 0) << policy;
  }
}

TEST_F(RealSession, OneAndTwoThreadsChooseTheSameRows) {
  const auto one = open_model(real_model_path(), 1);
  const SessionOptions options =
      session_options({.budget = "4MiB", .policy = "andpro", .prompt = 900, .generated = 12});
  const auto a = open_session(*one, options);
  const auto b = open_session(*model_, options);
  EXPECT_EQ(greedy(*a, window(30000, 900), 12), greedy(*b, window(30000, 900), 12));
  EXPECT_EQ(a->kv_map().layers, b->kv_map().layers);
  EXPECT_GT(a->stats().evicted_rows, 0);
}

TEST_F(RealSession, BudgetsHoldOverALongText) {
  for (const char* text : {"16MiB", "8MiB", "4MiB"}) {
    const auto session =
        open_session(*model_, session_options({.budget = text, .policy = "andpro", .prompt = 1600, .generated = 16}));
    must(session->prefill(window(40000, 1600)));
    for (int i = 0; i < 16; ++i)
      must(session->decode(argmax(session->logits())));
    const Stats stats = session->stats();
    EXPECT_LE(stats.kv_peak_bytes, stats.kv_budget_bytes) << text;
    EXPECT_LE(stats.kv_budget_bytes, static_cast<int64_t>(budget(text).value)) << text;
    EXPECT_GT(stats.evicted_rows, 0) << text;
    EXPECT_GE(stats.fill, std::string(text) == "4MiB" ? 0.7 : 0.85) << text << ": blocks stand empty";
    std::printf("%s: peak %.1f %% of the budget, fill %.3f, keep %.3f\n", text,
                100.0 * static_cast<double>(stats.kv_peak_bytes) / static_cast<double>(stats.kv_budget_bytes),
                stats.fill, stats.keep);
  }
}

// Saved, forked and rewound after evictions, read layer by layer and in chunks: equal bits.
TEST_F(RealSession, WhatFollowsARestoreAForkOrARewindIsWhatWouldHaveFollowed) {
  const TempDir dir;
  for (const PrefillOrder order : {PrefillOrder::layer_major, PrefillOrder::chunked}) {
    SCOPED_TRACE(order == PrefillOrder::chunked ? "chunked" : "layer-major");
    SessionOptions options =
        session_options({.budget = "5MiB", .policy = "andpro/every:n=16", .prompt = 700, .generated = 100});
    options.order = order;
    options.branch_tokens = 40;
    const auto session = open_session(*model_, options);
    must(session->prefill(window(20000, 700)));
    for (int i = 0; i < 20; ++i)
      must(session->decode(session->sample()));
    EXPECT_GT(session->stats().evicted_rows, 0);
    must(session->save(dir.file("a.kedge")));
    const auto restored = Session::restore(*model_, dir.file("a.kedge"));
    ASSERT_TRUE(restored.ok()) << restored.error().message;
    const auto forked = session->fork();
    const auto control = session->fork();
    ASSERT_TRUE(forked.ok() && control.ok());
    (*forked)->mark();
    (*control)->mark();
    const int64_t evicted = (*forked)->stats().evicted_rows;
    must((*forked)->prefill(window(9000, 120)));
    for (int i = 0; i < 20; ++i)
      must((*forked)->decode((*forked)->sample()));
    EXPECT_GT((*forked)->stats().evicted_rows, evicted);
    must((*forked)->rewind());
    expect_same_future(**forked, **control);
    expect_same_future(*session, **restored);
  }
}

}  // namespace
}  // namespace kedge::test
