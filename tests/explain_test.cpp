// What a session says about its evictions is what happened in it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "door.h"
#include "support/kl.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace kedge::test {
namespace {

class Explained : public testing::Test {
 protected:
  void SetUp() override {
    write_tiny_model(make_tiny_weights({.n_layers = 3, .n_heads = 4, .n_kv_heads = 2, .qk_gain = 1.4F, .seed = 3}),
                     dir_.file("tiny.gguf"));
    model_ = open_model(dir_.file("tiny.gguf"), 1);
  }
  std::unique_ptr<Session> read(const std::string& policy, const std::string& budget_text, bool explain = true,
                                bool decode = true) {
    SessionOptions options = session_options({.budget = budget_text, .policy = policy, .prompt = 300, .generated = 20});
    options.explain = explain;
    auto session = open_session(*model_, options);
    must(session->prefill(prompt_));
    for (size_t i = 0; decode && i < more_.size(); ++i)
      must(session->decode(more_[i]));
    return session;
  }

  TempDir dir_;
  std::unique_ptr<Model> model_;
  std::vector<Token> prompt_ = random_tokens(300, 1);
  std::vector<Token> more_ = random_tokens(20, 2);
};

TEST_F(Explained, CountersAddUpUnderEveryPolicy) {
  for (const std::string& policy : evicting_scorers()) {
    const auto session = read(policy, "25%", false);
    const Stats stats = session->stats();
    int64_t rows = 0;
    int64_t evicted = 0;
    int64_t evictions = 0;
    double ms = 0;
    for (const LayerStats& layer : session->layer_stats()) {
      evictions += layer.evictions;
      ms += layer.policy_ms;
      ASSERT_EQ(layer.heads.size(), 2U);
      for (const HeadStats& head : layer.heads) {
        rows += head.rows;
        evicted += head.evicted;
        EXPECT_GT(head.evictions, 0) << policy;
        EXPECT_LE(head.evictions, layer.evictions) << policy;
        EXPECT_LE(head.min_kept_score, head.mean_kept_score) << policy;
      }
    }
    EXPECT_EQ(rows, stats.kv_rows) << policy;
    EXPECT_EQ(evicted, stats.evicted_rows) << policy;
    EXPECT_EQ(evictions, stats.evictions) << policy;
    EXPECT_NEAR(ms, stats.policy_ms, 1e-6) << policy;
  }
}

TEST_F(Explained, ExplainingChangesNothing) {
  const auto plain = read("andpro", "25%", false);
  const auto told = read("andpro", "25%");
  EXPECT_EQ(plain->kv_map().layers, told->kv_map().layers);
  EXPECT_EQ(logits_of(*plain), logits_of(*told));
  EXPECT_FALSE(plain->explain({}).ok());
}

TEST_F(Explained, TokensAreThoseReadAndHoldersThoseOfTheMap) {
  // Chunks would keep a bad row for its neighbours' sake.
  const auto session = read("andpro:chunk=1", "25%");
  const Result<Explanation> all = session->explain({.n = 25});
  ASSERT_TRUE(all.ok()) << all.error().message;
  EXPECT_EQ(all->n_tokens, 320);
  EXPECT_EQ(all->n_heads, 6);
  EXPECT_EQ(all->part_names, (std::vector<std::string>{"attention", "projection"}));
  ASSERT_EQ(all->best.size(), 25U);
  ASSERT_EQ(all->worst.size(), 25U);
  const KvMap map = session->kv_map();
  double held[2] = {0, 0};
  for (const auto* list : {&all->best, &all->worst}) {
    for (const ExplainedToken& row : *list) {
      const auto at = static_cast<size_t>(row.position);
      EXPECT_EQ(row.token, prompt_[at]);
      size_t n = 0;
      for (const auto& layer : map.layers) {
        for (const auto& head : layer)
          n += std::ranges::binary_search(head, row.position) ? 1 : 0;
      }
      EXPECT_EQ(row.held_by.size(), n) << row.position;
      EXPECT_TRUE(std::isfinite(row.score) && std::isfinite(row.parts[0]) && std::isfinite(row.parts[1]));
      held[list == &all->worst] += static_cast<double>(n);
    }
  }
  EXPECT_GT(held[0], 4 * held[1]) << "good tokens are held, bad ones are not";
  EXPECT_GE(all->best.back().rank, all->worst.back().rank);
}

// A head's rows with the best scores stay: no chunks, nothing protected but the newest rows.
TEST_F(Explained, InOneHeadTheBestAreKept) {
  SessionOptions options = session_options(
      {.budget = "20%", .policy = "snapkv/uniform", .prompt = 300, .generated = 8, .hold_continuation = true});
  options.explain = true;
  const auto session = open_session(*model_, options);
  must(session->prefill(prompt_));
  const Result<Explanation> one = session->explain({.n = 1000, .layer = 2, .head = 1});
  ASSERT_TRUE(one.ok());
  EXPECT_EQ(one->n_judged, 300 - 32) << "the window is protected";
  ASSERT_EQ(one->best.size(), 268U);
  for (size_t i = 0; i < one->best.size(); ++i)
    EXPECT_EQ(one->best[i].held_by.size(), i < 60 - 32 ? 1U : 0U) << i;
}

// The scorer's parts are told with the scores, before the layers divide.
TEST_F(Explained, LayersThatShareATotalTellPartsAndWhatIsProtected) {
  for (const bool decodes : {false, true}) {
    const auto session = read("echo", "25%", true, decodes);
    const Result<Explanation> all = session->explain({.n = 1000});
    ASSERT_TRUE(all.ok()) << all.error().message;
    EXPECT_EQ(all->part_names, (std::vector<std::string>{"echo", "past", "anchor"}));
    for (const auto* list : {&all->best, &all->worst}) {
      for (const ExplainedToken& row : *list) {
        for (const double part : row.parts)
          EXPECT_TRUE(std::isfinite(part) && part >= 0) << row.position;
      }
    }
    const auto is_sink = [](const ExplainedToken& row) { return row.position < 4; };
    EXPECT_TRUE(std::ranges::none_of(all->best, is_sink)) << "sinks are protected, not judged";
    EXPECT_EQ(read("echo", "25%", false, decodes)->kv_map().layers, session->kv_map().layers);
  }
}

TEST_F(Explained, WithoutEvictionsNothingIsJudged) {
  const auto session = read("andpro", "100%");
  const Result<Explanation> all = session->explain({});
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->n_judged, 0);
  EXPECT_TRUE(all->best.empty() && all->worst.empty());
}

TEST_F(Explained, AddressesAndCountsAreChecked) {
  const auto session = read("streaming", "25%");
  EXPECT_TRUE(session->explain({.n = 3})->part_names.empty()) << "a position has no parts";
  for (const ExplainOptions& options : {ExplainOptions{.layer = 3}, ExplainOptions{.layer = 0, .head = 2},
                                        ExplainOptions{.n = 0}, ExplainOptions{.layer = -2}}) {
    const Result<Explanation> refused = session->explain(options);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::usage);
  }
}

}  // namespace
}  // namespace kedge::test
