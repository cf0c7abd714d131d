// A text of any length through a fixed budget: bounded all the way, and no slower at its end than when the budget had
// just been filled. The text is the real one, repeated; positions go far beyond the trained context, which the budget's
// policy allows (what the model makes of them is not judged here). 20,000 tokens, and speeds are only printed, unless
// KEDGE_LONG_TOKENS says otherwise:
//   KEDGE_LONG_TOKENS=200000 ctest -L long
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base/clock.h"
#include "door.h"
#include "support/real_model.h"

namespace kedge::test {
namespace {

struct Moment {
  int64_t tokens = 0;
  double seconds = 0;
};

// Tokens a second between two counts of tokens, linear between the moments.
double rate(const std::vector<Moment>& moments, int64_t from, int64_t to) {
  const auto seconds_at = [&](int64_t tokens) {
    const auto after = std::ranges::lower_bound(moments, tokens, {}, &Moment::tokens);
    if (after == moments.begin() || after == moments.end())
      return after == moments.end() ? moments.back().seconds : after->seconds;
    const Moment& before = *(after - 1);
    const double share =
        static_cast<double>(tokens - before.tokens) / static_cast<double>(after->tokens - before.tokens);
    return before.seconds + share * (after->seconds - before.seconds);
  };
  return static_cast<double>(to - from) / (seconds_at(to) - seconds_at(from));
}

TEST(LongText, IsReadAtOneSpeedInsideTheBudget) {
  if (real_model_path().empty() || real_text().empty())
    GTEST_SKIP() << "KEDGE_MODEL or KEDGE_TEXT is not there";
  const char* wanted = std::getenv("KEDGE_LONG_TOKENS");
  const int64_t n = wanted != nullptr ? std::atoll(wanted) : 20000;
  const char* budget_text = std::getenv("KEDGE_LONG_BUDGET");
  const auto model = open_model(real_model_path(), 0);
  std::vector<Token> tokens = model->tokenize(real_text(), true, false);
  ASSERT_GT(tokens.size(), 2000U);
  const size_t once = tokens.size();
  while (static_cast<int64_t>(tokens.size()) < n)
    tokens.push_back(tokens[tokens.size() - once + 1]);
  tokens.resize(static_cast<size_t>(n));

  SessionOptions options =
      session_options({.budget = budget_text != nullptr ? budget_text : "16MiB", .policy = "andpro", .prompt = n});
  options.order = PrefillOrder::chunked;
  options.n_batch = 1024;
  options.n_ctx = static_cast<int>(n) + 64;
  const auto session = open_session(*model, options);
  const Stopwatch watch;
  std::vector<Moment> moments;
  int64_t filled_at = -1;
  must(session->prefill(tokens, [&](int64_t done, int64_t) {
    if (moments.empty() || done > moments.back().tokens)
      moments.push_back({done, watch.seconds()});
    const Stats stats = session->stats();
    EXPECT_LE(stats.kv_peak_bytes, stats.kv_budget_bytes);
    if (filled_at < 0 && stats.evicted_rows > 0)
      filled_at = session->n_tokens();
    return true;
  }));
  ASSERT_EQ(session->n_tokens(), n);
  ASSERT_GE(filled_at, 0);
  const Stats stats = session->stats();
  EXPECT_LE(stats.kv_peak_bytes, stats.kv_budget_bytes);
  EXPECT_LE(stats.kv_budget_bytes, static_cast<int64_t>(options.budget.value));
  const double first = rate(moments, filled_at, filled_at + 1000);
  const double last = rate(moments, n - 1000, n);
  for (int64_t at = 0; at + 1000 <= n; at += 1000) {
    if (at % 10000 == 0 || at + 2000 > n)
      std::printf("tokens %lld..%lld: %.1f tok/s\n", static_cast<long long>(at), static_cast<long long>(at + 1000),
                  rate(moments, at, at + 1000));
  }
  std::printf("first after the budget filled %.1f, last %.1f tok/s (%.3f); peak %lld of %lld bytes\n", first, last,
              last / first, static_cast<long long>(stats.kv_peak_bytes), static_cast<long long>(stats.kv_budget_bytes));
  if (wanted != nullptr) {  // asked for: a machine with nothing beside it
    EXPECT_GT(last, 0.85 * first);
    EXPECT_LT(last, 1.15 * first);
  }
}

}  // namespace
}  // namespace kedge::test
