#include "comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sections.h"

namespace kedge::report {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Runs = std::vector<Run>;  // in a test, Run is a method of testing::Test

// Six samples: `good` is right in all, `bad` in none, `near` in all but one; the full cache in all.
Run three_policies() {
  Run run{.name = "run", .folder = "run"};
  run.config.policies = {{"good", ""}, {"near", ""}, {"bad", ""}};
  const struct {
    const char* policy;
    const char* budget;
    int n_right;
  } lines[] = {{"none", "100%", 6}, {"good", "25%", 6}, {"near", "25%", 5}, {"bad", "25%", 0}};
  for (const auto& line : lines) {
    for (int i = 0; i < 6; ++i) {
      run.predictions.push_back({.task = "needle",
                                 .sample = "s" + std::to_string(i),
                                 .policy = line.policy,
                                 .budget = line.budget,
                                 .length = 512,
                                 .score = i < line.n_right ? 1 : 0});
    }
    for (const Number length : {Number(), Number(512)}) {
      run.groups.push_back({.task = "needle",
                            .policy = line.policy,
                            .budget = line.budget,
                            .length = length,
                            .n = 6,
                            .score = line.n_right / 6.0,
                            .keep = line.policy == std::string("none") ? 1 : 0.25});
    }
  }
  return run;
}

const Setting kSetting{.task = "needle", .budget = "25%", .length = 512};

TEST(Comparison, FindsGroups) {
  const Runs runs = {three_policies()};
  const Comparison comparison(runs);
  EXPECT_THAT(comparison.tasks(), ElementsAre("needle"));
  EXPECT_THAT(comparison.budgets(), ElementsAre("25%"));
  EXPECT_THAT(comparison.lengths("needle"), ElementsAre(512));
  ASSERT_EQ(comparison.series().size(), 4U);
  EXPECT_EQ(comparison.series()[0].label, "full cache");
  EXPECT_EQ(comparison.series()[1].style.colour, 0);
  ASSERT_NE(comparison.full(0, kSetting), nullptr);  // at whatever budget
  EXPECT_EQ(comparison.full(0, kSetting)->score, 1);
  EXPECT_EQ(comparison.find(comparison.series()[2], kSetting)->score, 5.0 / 6);
  EXPECT_EQ(comparison.find(comparison.series()[2], {.task = "needle", .budget = "50%", .length = 512}), nullptr);
}

TEST(Comparison, OneSampleMoreIsNoProof) {
  const Runs runs = {three_policies()};
  const Comparison comparison(runs);
  const Verdict verdict = comparison.verdict(kSetting);
  EXPECT_EQ(verdict.best->policy, "good");
  EXPECT_EQ(verdict.second->policy, "near");
  EXPECT_EQ(verdict.lead.n, 6);
  EXPECT_DOUBLE_EQ(verdict.lead.p, 1);  // one difference: either sign is as far
  EXPECT_FALSE(verdict.significant());
}

TEST(Comparison, SixSamplesMoreAre) {
  Runs runs = {three_policies()};
  std::erase_if(runs[0].groups, [](const Group& group) { return group.policy == "near"; });
  const Comparison comparison(runs);
  const Verdict verdict = comparison.verdict(kSetting);
  EXPECT_EQ(verdict.second->policy, "bad");
  EXPECT_DOUBLE_EQ(verdict.lead.p, 2.0 / 64);
  EXPECT_TRUE(verdict.significant());
}

TEST(Comparison, RunsArePairedBySample) {
  Runs runs = {three_policies(), three_policies()};
  runs[1].name = "peer";
  std::erase_if(runs[0].groups, [](const Group& group) { return group.policy != "good" && group.policy != "none"; });
  std::erase_if(runs[1].groups, [](const Group& group) { return group.policy != "bad"; });
  const Comparison comparison(runs);
  EXPECT_EQ(comparison.series()[1].label, "good (run)");
  const Verdict verdict = comparison.verdict(kSetting);
  EXPECT_EQ(verdict.second->label, "bad (peer)");
  EXPECT_TRUE(verdict.significant());
  runs[1].config.seed = 7;  // the same ids, other samples
  EXPECT_EQ(Comparison(runs).verdict(kSetting).lead.n, 0);
  runs[1].config.seed.reset();
  for (Prediction& row : runs[1].predictions)
    row.sample += "-other";  // not the same work: nothing to pair
  EXPECT_EQ(Comparison(runs).verdict(kSetting).lead.n, 0);
  EXPECT_FALSE(Comparison(runs).verdict(kSetting).significant());
}

TEST(Comparison, LessDivergenceIsBetter) {
  Runs runs = {three_policies()};
  for (Group& group : runs[0].groups) {
    group.kld_mean = group.policy == "near" ? 0.01 : 0.2;
    group.score.reset();
  }
  const Comparison comparison(runs);
  EXPECT_EQ(comparison.measure("needle"), Measure::kld);
  EXPECT_EQ(comparison.verdict(kSetting).best->policy, "near");
}

TEST(Finding, SaysTheShareOfTheFullScore) {
  const Runs runs = {three_policies()};
  EXPECT_EQ(
      finding(Comparison(runs), kSetting),
      "At a budget of 25% good keeps 100\u00a0% of the full cache's score, bad 0\u00a0%. The lead over near may be "
      "chance (p = 1.000).");
}

TEST(NameRuns, ShortestEndsThatDiffer) {
  Runs runs(3);
  runs[0].folder = "/a/x/run";
  runs[1].folder = "/a/y/run/";
  runs[2].folder = "/a/other";
  name_runs(runs);
  EXPECT_EQ(runs[0].name, "x/run");
  EXPECT_EQ(runs[1].name, "y/run");
  EXPECT_EQ(runs[2].name, "other");
}

TEST(Sections, NothingToShowIsSaid) {
  Runs runs(1);
  runs[0].config.policies = {{"none", ""}};
  const Comparison comparison(runs);
  for (const auto section : {summary_section, heatmap_section, quality_section, memory_section, rows_section,
                             times_section, table_section, predictions_section}) {
    const Section made = section(comparison);
    EXPECT_FALSE(made.heading.empty()) << made.id;
    EXPECT_TRUE(made.sets.empty()) << made.id;
  }
}

TEST(Sections, AnswersAreNeverMarkup) {
  Runs runs = {three_policies()};
  for (Prediction& row : runs[0].predictions) {
    row.prediction = "<img src=x onerror=alert(1)>";
    row.answers = "[\"<b>\", \"two\"]";
  }
  const std::string html = predictions_section(Comparison(runs)).html;
  EXPECT_THAT(html, HasSubstr("&lt;img src=x onerror=alert(1)&gt;"));
  EXPECT_THAT(html, HasSubstr("&lt;b&gt;  |  two"));
  EXPECT_EQ(html.find("<img"), std::string::npos);
}

}  // namespace
}  // namespace kedge::report
