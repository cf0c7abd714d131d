#include "same_future.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "door.h"
#include "support/tiny_model.h"

namespace kedge::test {
namespace {

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

void decode_both(Session& a, Session& b, int n) {
  for (int i = 0; i < n; ++i) {
    const Token token = a.sample();
    ASSERT_EQ(token, b.sample()) << "token " << i;
    must(a.decode(token));
    must(b.decode(token));
    ASSERT_TRUE(same_bits(a.logits(), b.logits())) << "after token " << i;
  }
}

}  // namespace

void expect_same_now(const Session& a, const Session& b) {
  EXPECT_EQ(a.n_tokens(), b.n_tokens());
  EXPECT_TRUE(std::ranges::equal(a.tokens(), b.tokens()));
  EXPECT_TRUE(same_bits(a.logits(), b.logits())) << "logits";
  EXPECT_EQ(a.kv_map().layers, b.kv_map().layers);
  const Stats x = a.stats();
  const Stats y = b.stats();
  EXPECT_EQ(x.kv_rows, y.kv_rows);
  EXPECT_EQ(x.kv_budget_bytes, y.kv_budget_bytes);
  EXPECT_EQ(x.evicted_rows, y.evicted_rows);
  EXPECT_EQ(x.evictions, y.evictions);
  EXPECT_EQ(x.prompt_tokens, y.prompt_tokens);
  EXPECT_EQ(x.generated_tokens, y.generated_tokens);
  EXPECT_EQ(x.policy, y.policy);
  for (const Stats& s : {x, y})
    EXPECT_LE(s.kv_peak_bytes, s.kv_budget_bytes);
}

void expect_same_future(Session& a, Session& b) {
  expect_same_now(a, b);
  decode_both(a, b, 70);
  expect_same_now(a, b);
  const std::vector<Token> text = random_tokens(90, 77);
  must(a.prefill(text));
  must(b.prefill(text));
  expect_same_now(a, b);
  decode_both(a, b, 40);
  expect_same_now(a, b);
}

}  // namespace kedge::test
