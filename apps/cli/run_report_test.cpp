#include "run_report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace kedge::cli {
namespace {

TEST(StatsJson, HasEveryKeyOfTheContract) {
  Stats stats;
  stats.prompt_tokens = 100;
  stats.prefill_seconds = 2;
  stats.generated_tokens = 9;
  stats.decode_seconds = 3;
  stats.keep = 0.25;
  stats.policy = "andpro";
  const RunOutcome outcome{.generated_tokens = 10,
                           .finish_reason = "length",
                           .preset = "compressed",
                           .sampler = {.temperature = 0.5F, .top_p = 0.95F, .length_penalty = 1.1F, .seed = 5}};
  const auto json =
      nlohmann::json::parse(stats_json(stats, outcome, 77, {{.evictions = 2, .heads = {{.rows = 3, .evicted = 4}}}}));
  for (const char* key : {"prompt_tokens",  "generated_tokens",      "prefill_tok_s",    "decode_tok_s",
                          "kv_live_bytes",  "kv_peak_bytes",         "kv_full_bytes",    "kv_budget_bytes",
                          "keep",           "evicted_rows",          "policy",           "policy_ms",
                          "peak_rss_bytes", "finish_reason",         "policy_fallbacks", "policy_fallback_rounds",
                          "decode_p50_ms",  "decode_p99_ms",         "decode_max_ms",    "budget_share",
                          "difficulty",     "anchor_recomputations", "anchor_drift",     "anchor_drift_max",
                          "discarded_rows", "gate_threshold"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_EQ(json["generated_tokens"], 10);
  EXPECT_EQ(json["prefill_tok_s"], 50.0);
  EXPECT_EQ(json["decode_tok_s"], 3.0);
  EXPECT_EQ(json["keep"], 0.25);
  EXPECT_EQ(json["peak_rss_bytes"], 77);
  EXPECT_EQ(json["finish_reason"], "length");
  EXPECT_EQ(json["seed"], 5);
  EXPECT_EQ(json["sampling"].dump(),
            R"({"length_penalty":1.1,"min_p":0.05,"preset":"compressed","repeat_last_n":64,"repeat_penalty":1.0,)"
            R"("temperature":0.5,"top_k":40,"top_p":0.95})");
  EXPECT_EQ(json["layers"][0]["evictions"], 2);
  EXPECT_EQ(json["layers"][0]["heads"][0]["rows"], 3);
  EXPECT_EQ(json["layers"][0]["heads"][0]["evicted"], 4);
}

TEST(StatsJson, NothingMeasuredIsZeroAndNotInfinite) {
  const auto json = nlohmann::json::parse(stats_json({}, {}, 0, {}));
  EXPECT_EQ(json["prefill_tok_s"], 0.0);
  EXPECT_EQ(json["decode_tok_s"], 0.0);
}

TEST(EndLine, NamesFallbacksAndTheShareInUse) {
  Stats stats;
  stats.evictions = 1200;
  EXPECT_EQ(end_line(stats, {}).find("time limit"), std::string::npos);
  EXPECT_EQ(end_line(stats, {}).find("difficulty"), std::string::npos);
  stats.policy_fallbacks = 30;
  stats.budget_share = 0.625;
  const std::string line = end_line(stats, {});
  EXPECT_NE(line.find("30 of 1,200 evictions over the time limit"), std::string::npos) << line;
  EXPECT_NE(line.find("62.5% of the budget in use by difficulty"), std::string::npos) << line;
}

TEST(KvMapJson, LayersHeadsPositions) {
  const KvMap map{.n_tokens = 9, .layers = {{{0, 3}, {1}}, {{}, {2, 8}}}};
  EXPECT_EQ(kv_map_json(map), "{\"n_tokens\":9,\"layers\":[[[0,3],[1]],[[],[2,8]]]}\n");
}

TEST(PeakRss, IsThisProcesss) {
  const int64_t before = peak_rss_bytes();
  EXPECT_GT(before, 1 << 20);
  std::string large(64 << 20, 'x');
  EXPECT_GT(peak_rss_bytes(), before + (32 << 20)) << large.size();
}

}  // namespace
}  // namespace kedge::cli
