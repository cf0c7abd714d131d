#include "eval/groups.h"

#include <gtest/gtest.h>

#include <cmath>

#include "eval/baseline.h"
#include "eval/table.h"

namespace kedge::eval {
namespace {

struct Asked {
  std::string sample;
  std::string policy;
  std::string budget;
  int64_t length;
  double depth;
  std::vector<double> scores;
};

CellRecord answered(const Asked& asked) {
  CellRecord record{.cell = "needle|" + asked.sample + "|" + asked.policy + "|" + asked.budget, .seconds = 0.5};
  for (size_t i = 0; i < asked.scores.size(); ++i) {
    Row row{.task = "needle",
            .sample = asked.sample,
            .length = asked.length,
            .depth = asked.depth,
            .policy = asked.policy,
            .budget = asked.budget,
            .question = static_cast<int64_t>(i),
            .metric = "contains",
            .score = asked.scores[i]};
    row.kv_peak_bytes = static_cast<int64_t>(100 * (i + 1));
    row.policy_ms = 4;
    record.rows.push_back(row);
  }
  return record;
}

CellRecord scored(const std::string& sample, double nll, double kld, int64_t n) {
  Row row{.task = "kld", .sample = sample, .length = 8, .policy = "andpro", .budget = "25%", .n_generated = n};
  row.nll = nll;
  row.full_nll = nll / 2;
  row.kld_mean = kld;
  row.kld_p99 = kld * 3;
  row.kld_max = kld * 4;
  row.same_top = 0.5;
  return {.cell = "kld|" + sample + "|andpro|25%", .rows = {row}};
}

const Group* find(const std::vector<Group>& groups, const std::string& policy, Value length, Value depth) {
  for (const Group& group : groups) {
    if (group.policy == policy && group.length == length && group.depth == depth)
      return &group;
  }
  return nullptr;
}

TEST(Groups, SamplesNotQuestionsAreTheUnit) {
  const std::vector<CellRecord> records = {
      answered({"a", "none", "100%", 512, 0.5, {1, 1}}), answered({"a", "andpro", "25%", 512, 0.5, {1, 0}}),
      answered({"b", "none", "100%", 1024, 0.5, {1}}),   answered({"b", "andpro", "25%", 1024, 0.5, {1}}),
      answered({"c", "none", "100%", 1024, 0.0, {0}}),   answered({"c", "andpro", "25%", 1024, 0.0, {0}})};
  const std::vector<Group> groups = make_groups(records, 0);
  const Group* pooled = find(groups, "andpro", {}, {});
  ASSERT_NE(pooled, nullptr);
  EXPECT_EQ(pooled->n, 3);
  EXPECT_DOUBLE_EQ(pooled->score.mean, 0.5);  // of 0.5, 1, 0
  EXPECT_DOUBLE_EQ(pooled->difference.mean, -0.5 / 3);
  EXPECT_EQ(pooled->difference.n, 3);
  EXPECT_EQ(pooled->kv_peak_bytes, 200);
  EXPECT_DOUBLE_EQ(find(groups, "andpro", 1024.0, {})->score.mean, 0.5);
  EXPECT_DOUBLE_EQ(find(groups, "andpro", 1024.0, 0.5)->score.mean, 1);
  EXPECT_DOUBLE_EQ(find(groups, "andpro", {}, 0.5)->score.mean, 0.75);
  EXPECT_EQ(groups.front().policy, "none");
  EXPECT_FALSE(groups.front().length.has_value());
}

TEST(Groups, DivergencesAndPerplexityWeighTokens) {
  const std::vector<CellRecord> records = {scored("a", 2, 0.1, 100), scored("b", 4, 0.3, 300)};
  const std::vector<Group> groups = make_groups(records, 0);
  const Group* pooled = find(groups, "andpro", {}, {});
  ASSERT_NE(pooled, nullptr);
  EXPECT_DOUBLE_EQ(pooled->kld.mean, 0.2);
  EXPECT_DOUBLE_EQ(*pooled->kld_max, 1.2);
  EXPECT_NEAR(*pooled->ppl, std::exp(3.5), 1e-9);
  EXPECT_NEAR(*pooled->full_ppl, std::exp(1.75), 1e-9);
  EXPECT_EQ(pooled->difference.n, 0);
  const Json json = to_json(*pooled);
  EXPECT_TRUE(json.at("score").is_null());
  EXPECT_TRUE(json.at("difference").is_null());
}

TEST(Groups, ErrorsAreCountedAndHaveNoScore) {
  std::vector<CellRecord> records = {answered({"a", "andpro", "25%", 512, 0.5, {1}}),
                                     answered({"b", "andpro", "25%", 512, 0.5, {1}})};
  records[1].rows[0].score = {};
  records[1].rows[0].error = "too small";
  const std::vector<Group> groups = make_groups(records, 0);
  EXPECT_EQ(groups.front().n, 1);
  EXPECT_EQ(groups.front().n_errors, 1);
}

TEST(Timings, AreMeansByPolicyAndBudget) {
  const std::vector<CellRecord> records = {answered({"a", "andpro", "25%", 512, 0.5, {1}}),
                                           answered({"b", "andpro", "25%", 512, 0.5, {1}})};
  const Json timings = timings_json(records);
  EXPECT_EQ(timings.at("groups").size(), 1U);
  EXPECT_EQ(timings.at("groups")[0].at("n"), 2);
  EXPECT_EQ(timings.at("groups")[0].at("policy_ms"), 4.0);
  EXPECT_EQ(timings.at("seconds_total"), 1.0);
}

Json metrics_of(double score) {
  const std::vector<CellRecord> records = {answered({"a", "andpro", "25%", 512, 0.5, {score}})};
  return metrics_json({{"seed", 0}, {"question_aware", true}, {"decode_evicts", false}}, records, Json(), true);
}

TEST(Baseline, FailsBelowTheAllowedDropOnly) {
  const auto near = compare_to_baseline(metrics_of(0.99), metrics_of(1), {.max_drop = 0.02});
  ASSERT_TRUE(near.ok()) << near.error().message;
  EXPECT_EQ(near->n_compared, 1);
  EXPECT_EQ(near->n_failed, 0);
  const auto below = compare_to_baseline(metrics_of(0.9), metrics_of(1), {.max_drop = 0.02});
  EXPECT_EQ(below->n_failed, 1);
  EXPECT_NE(below->lines.find("needle andpro 25%: score 0.9000, baseline 1.0000  BELOW"), std::string::npos);
}

TEST(Baseline, ARiseOfTheDivergenceFails) {
  const Json config = {{"seed", 0}, {"question_aware", true}, {"decode_evicts", false}};
  const auto metrics = [&config](double kld) {
    const std::vector<CellRecord> records = {scored("a", 2, kld, 100)};
    return metrics_json(config, records, Json(), true);
  };
  EXPECT_EQ(compare_to_baseline(metrics(0.11), metrics(0.1), {.max_kld_rise = 0.2})->n_failed, 0);
  EXPECT_EQ(compare_to_baseline(metrics(0.13), metrics(0.1), {.max_kld_rise = 0.2})->n_failed, 1);
}

TEST(Baseline, RefusesAnotherGridAndDamage) {
  Json other = metrics_of(1);
  for (Json& group : other["groups"])
    group["budget"] = "50%";
  const auto missing = compare_to_baseline(metrics_of(1), other, {});
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.error().message.find("needle andpro 50%"), std::string::npos);
  EXPECT_FALSE(compare_to_baseline(metrics_of(1), {{"groups", Json::array()}}, {}).ok());
  EXPECT_FALSE(compare_to_baseline(metrics_of(1), {{"groups", 3}}, {}).ok());
  EXPECT_FALSE(compare_to_baseline(metrics_of(1), Json::object(), {}).ok());
}

TEST(Table, ShowsOnlyColumnsThatHaveValuesAndTheFloorBelow) {
  const std::vector<CellRecord> records = {scored("a", 2, 0.1, 100)};
  const Json floor = {{"kld_mean", 0.003}, {"same_top", 0.98}, {"what", "this against that"}};
  const std::string text = table_text(make_groups(records, 0), floor);
  EXPECT_NE(text.find("KLD"), std::string::npos);
  EXPECT_EQ(text.find("score"), std::string::npos);
  EXPECT_NE(text.find("noise floor: KLD 3.00e-03, same top 98.0% (this against that, nothing evicted)"),
            std::string::npos);
}

}  // namespace
}  // namespace kedge::eval
