#include "perplexity_report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace kedge::cli {
namespace {

WindowScore window(int64_t offset, double nll, double kld, int64_t n_same_top) {
  return {.offset = offset,
          .nll = {nll, nll},
          .full_nll = {1.0, 3.0},
          .kld = {kld, 3 * kld},
          .n_same_top = n_same_top,
          .keep = 0.25,
          .kv_peak_bytes = 100 + offset,
          .kv_budget_bytes = 1 << 20,
          .evicted_rows = 5,
          .policy = "andpro/pooled"};
}

PerplexityReport report_of(bool with_full) {
  PerplexityReport report({.context = 8, .continuation = 2, .n_windows = 2, .seed = 7, .with_full = with_full});
  report.add(window(30, 2.0, 0.1, 2));
  report.add(window(10, 4.0, 0.3, 1));
  return report;
}

TEST(PerplexityReport, JsonHasTheKeysAndTheirMeans) {
  const auto json = nlohmann::json::parse(report_of(true).json());
  EXPECT_NEAR(json["ppl"], std::exp(3.0), 1e-9);
  EXPECT_NEAR(json["ppl_se"], std::exp(3.0) * 1.0, 1e-9);
  EXPECT_NEAR(json["full_ppl"], std::exp(2.0), 1e-9);
  EXPECT_NEAR(json["kld_mean"], 0.4, 1e-12);
  EXPECT_NEAR(json["kld_se"], 0.2, 1e-12);
  EXPECT_NEAR(json["kld_max"], 0.9, 1e-12);
  EXPECT_LT(json["kld_p99"], 0.9);
  EXPECT_GT(json["kld_p99"], 0.85);
  EXPECT_EQ(json["same_top"], 0.75);
  EXPECT_EQ(json["kv_peak_bytes"], 130);
  EXPECT_EQ(json["kv_budget_bytes"], 1 << 20);
  EXPECT_EQ(json["keep"], 0.25);
  EXPECT_EQ(json["evicted_rows"], 10);
  EXPECT_EQ(json["context"], 8);
  EXPECT_EQ(json["continue"], 2);
  EXPECT_EQ(json["samples"], 2);
  EXPECT_EQ(json["seed"], 7);
  EXPECT_EQ(json["policy"], "andpro/pooled");
  ASSERT_EQ(json["windows"].size(), 2U);
  EXPECT_EQ(json["windows"][0]["offset"], 30);
  EXPECT_NEAR(json["windows"][1]["kld_mean"], 0.6, 1e-12);
  EXPECT_EQ(json["windows"][1]["nll"], 4.0);
  EXPECT_EQ(json["windows"][1]["full_nll"], 2.0);
  EXPECT_EQ(json["windows"][1]["same_top"], 0.5);
}

TEST(PerplexityReport, OneWindowHasNoError) {
  PerplexityReport report({.context = 8, .continuation = 2, .n_windows = 1, .seed = 0, .with_full = true});
  report.add(window(0, 2.0, 0.1, 2));
  const auto json = nlohmann::json::parse(report.json());
  EXPECT_TRUE(json["ppl_se"].is_null());
  EXPECT_TRUE(json["kld_se"].is_null());
  EXPECT_EQ(report.text().find("+/-"), std::string::npos);
}

TEST(PerplexityReport, TextEndsWithThePerplexity) {
  const std::string text = report_of(true).text();
  EXPECT_TRUE(text.ends_with("PPL = 20.0855 +/- 20.0855")) << text;
  EXPECT_NE(text.find("KLD mean = 0.400000 +/- 0.200000"), std::string::npos) << text;
  EXPECT_NE(text.find("same top token = 75.00 +/- 25.00 %"), std::string::npos) << text;
}

TEST(PerplexityReport, WithoutTheFullCacheThereIsNoDivergence) {
  const std::string text = report_of(false).text();
  EXPECT_EQ(text.find("KLD"), std::string::npos);
  EXPECT_EQ(text.find("full"), std::string::npos);
  EXPECT_EQ(report_of(false).running_line().find("KLD"), std::string::npos);
}

TEST(PerplexityReport, RunningLine) {
  const std::string line = report_of(true).running_line();
  EXPECT_TRUE(line.starts_with("window 2/2 at token 10: PPL so far 20.0855, KLD 0.6000, so far 0.4000")) << line;
}

}  // namespace
}  // namespace kedge::cli
