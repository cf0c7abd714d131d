// What a session computes after evictions is what a plain model computes that sees exactly the rows of its KV map:
// ragged heads, any policy, both prompt orders, evictions while decoding. Positions, masks and rotations in one proof.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "door.h"
#include "support/kl.h"
#include "support/plain_llama.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace kedge::test {
namespace {

constexpr double kTolerance = 5e-4;  // of a logit; f32 sums against double, the f16 rows are the same

double distance(std::span<const float> a, std::span<const float> b) {
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    worst = d <= worst ? worst : d;  // NaN comes through
  }
  return worst;
}

// The map's rows before `n_tokens`: what a batch that starts there could see.
Kept before(const KvMap& map, int64_t n_tokens) {
  Kept kept = map.layers;
  for (auto& layer : kept) {
    for (auto& head : layer)
      std::erase_if(head, [&](int32_t p) { return p >= n_tokens; });
  }
  return kept;
}

class EvictionProof : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    write_tiny_model(weights_, dir_.file("tiny.gguf"));
    model_ = open_model(dir_.file("tiny.gguf"), 1);
  }

  // Prefills while the plain model follows chunk by chunk with the map after the chunk before.
  void prefill_both(Session& session, PlainLlama& plain, std::span<const Token> tokens) {
    KvMap last{.n_tokens = 0, .layers = before(session.kv_map(), 0)};
    std::vector<std::vector<float>> rows;
    int chunks = 0;
    must(session.prefill(tokens, [&](int64_t, int64_t) {
      KvMap now = session.kv_map();
      if (session.n_tokens() > last.n_tokens) {
        now.n_tokens = session.n_tokens();
        const auto begin = static_cast<size_t>(last.n_tokens);
        rows = plain.append(tokens.subspan(begin, static_cast<size_t>(now.n_tokens) - begin), last.layers);
        last = std::move(now);
        ++chunks;
      }
      return true;
    }));
    ASSERT_EQ(plain.n_tokens(), session.n_tokens()) << "the end of every chunk is reported";
    n_chunks_ = chunks;
    EXPECT_LE(distance(session.logits(), rows.back()), kTolerance) << "after the prompt";
  }

  // Decodes; each token saw what is held after it.
  void decode_both(Session& session, PlainLlama& plain, std::span<const Token> tokens) {
    for (const Token token : tokens) {
      const int64_t position = session.n_tokens();
      must(session.decode(token));
      const auto expected = plain.append(std::span(&token, 1), before(session.kv_map(), position));
      ASSERT_LE(distance(session.logits(), expected[0]), kTolerance) << "at position " << position;
    }
  }

  TempDir dir_;
  TinyWeights weights_ = make_tiny_weights({.n_layers = 3, .n_heads = 6, .n_kv_heads = 2, .qk_gain = 1.4F, .seed = 11});
  std::unique_ptr<Model> model_;
  int n_chunks_ = 0;
};

TEST_P(EvictionProof, ScoredAfterOneEviction) {
  const std::vector<Token> tokens = random_tokens(340, 21);
  const auto prompt = std::span(tokens).first(300);
  const auto rest = std::span(tokens).subspan(300);
  const auto session = open_session(
      *model_, session_options(
                   {.budget = "20%", .policy = GetParam(), .prompt = 300, .generated = 40, .hold_continuation = true}));
  PlainLlama plain(weights_);
  prefill_both(*session, plain, prompt);
  ASSERT_GT(session->stats().evicted_rows, 0);
  PlainLlama full = plain;
  const auto expected = plain.append(rest, before(session->kv_map(), 300));
  const auto uncut = full.append(rest, full.everything());
  const auto scored = score_all(*session, rest);
  double farthest = 0;
  for (size_t i = 0; i < rest.size(); ++i) {
    EXPECT_LE(distance(scored[i], expected[i]), kTolerance) << "token " << i << " after the eviction";
    farthest = std::max(farthest, distance(scored[i], uncut[i]));
  }
  EXPECT_GT(farthest, 30 * kTolerance) << "the rows that went mattered";
}

TEST_P(EvictionProof, ChunkedPromptThenDecoding) {
  const std::vector<Token> tokens = random_tokens(560, 22);
  SessionOptions options = session_options({.budget = "300KiB", .policy = GetParam(), .prompt = 400, .generated = 160});
  options.order = PrefillOrder::chunked;
  const auto session = open_session(*model_, options);
  PlainLlama plain(weights_);
  prefill_both(*session, plain, std::span(tokens).first(400));
  EXPECT_GT(n_chunks_, 1);
  const int64_t after_prompt = session->stats().evicted_rows;
  EXPECT_GT(after_prompt, 0);
  decode_both(*session, plain, std::span(tokens).subspan(400));
  EXPECT_GT(session->stats().evicted_rows, after_prompt) << "decoding evicts too";
  EXPECT_LE(session->stats().kv_peak_bytes, session->stats().kv_budget_bytes);
}

TEST_P(EvictionProof, LayerMajorPromptThenDecoding) {
  const std::vector<Token> tokens = random_tokens(330, 23);
  SessionOptions options = session_options({.budget = "25%", .policy = GetParam(), .prompt = 250, .generated = 80});
  options.order = PrefillOrder::layer_major;
  const auto session = open_session(*model_, options);
  PlainLlama plain(weights_);
  prefill_both(*session, plain, std::span(tokens).first(250));
  EXPECT_EQ(n_chunks_, 1);
  EXPECT_GT(session->stats().evicted_rows, 0);
  decode_both(*session, plain, std::span(tokens).subspan(250));
}

// A second turn: what the first one left is what the next prompt sees.
TEST_P(EvictionProof, SecondPrompt) {
  const std::vector<Token> tokens = random_tokens(420, 24);
  const auto session =
      open_session(*model_, session_options({.budget = "250KiB", .policy = GetParam(), .prompt = 200}));
  PlainLlama plain(weights_);
  prefill_both(*session, plain, std::span(tokens).first(200));
  decode_both(*session, plain, std::span(tokens).subspan(200, 20));
  const int64_t begin = session->n_tokens();
  // Rows may go before the second prompt's first chunk: the plain model follows what is held when that chunk has run.
  KvMap seen = session->kv_map();
  const auto second = std::span(tokens).subspan(220, 8);
  must(session->prefill(second));
  const Kept visible = before(session->kv_map(), begin);
  if (session->stats().evicted_rows == 0 || visible == before(seen, begin)) {
    EXPECT_LE(distance(session->logits(), plain.append(second, before(seen, begin)).back()), kTolerance);
  } else {
    const auto rows = PlainLlama(plain).append(second, visible);
    const auto kept_all = PlainLlama(plain).append(second, before(seen, begin));
    EXPECT_LE(std::min(distance(session->logits(), rows.back()), distance(session->logits(), kept_all.back())),
              kTolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, EvictionProof, testing::ValuesIn(evicting_scorers()),
                         [](const testing::TestParamInfo<std::string>& i) { return i.param; });

}  // namespace
}  // namespace kedge::test
