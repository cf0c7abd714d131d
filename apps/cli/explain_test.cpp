#include "explain.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace kedge::cli {
namespace {

TEST(TokenText, IsOneLineWhateverTheBytes) {
  EXPECT_EQ(token_text(" the", 20), "' the'");
  EXPECT_EQ(token_text("a\n\tb", 20), "'a\\n\\tb'");
  EXPECT_EQ(token_text(std::string("\x01\xff", 2), 20), "'\\x01\\xff'");
  EXPECT_EQ(token_text("\xc3\xa9", 20), "'\xc3\xa9'") << "a whole character stays";
  EXPECT_EQ(token_text("\xc3", 20), "'\\xc3'") << "half of one does not";
  EXPECT_EQ(token_text(std::string(30, 'x'), 10), "'xxxxxxxx..");
  EXPECT_EQ(token_text("", 10), "''");
}

Settings asked(const std::string& at) {
  Settings settings;
  settings.explain = 3;
  settings.explain_at = at;
  return settings;
}

TEST(ExplainOptions, LayersAndHeads) {
  EXPECT_EQ(explain_options(asked(""))->layer, -1);
  EXPECT_EQ(explain_options(asked(""))->n, 3);
  EXPECT_EQ(explain_options(asked("12"))->layer, 12);
  EXPECT_EQ(explain_options(asked("12"))->head, -1);
  EXPECT_EQ(explain_options(asked("12:1"))->head, 1);
  for (const char* text : {"x", "1:", ":1", "-1", "1:2:3", "1.5", "99999999999"}) {
    const Result<ExplainOptions> options = explain_options(asked(text));
    ASSERT_FALSE(options.ok()) << text;
    EXPECT_EQ(options.error().code, ErrorCode::usage);
    EXPECT_NE(options.error().message.find("3:0"), std::string::npos) << options.error().message;
  }
  Settings only_at;
  only_at.explain_at = "1";
  EXPECT_FALSE(explain_options(only_at).ok());
  Settings only_json;
  only_json.explain_json = "x.json";
  EXPECT_TRUE(explain_asked(only_json));
  EXPECT_EQ(explain_options(only_json)->n, 10);
  EXPECT_FALSE(explain_asked({}));
}

TEST(ExplainOptions, WhatTheModelDoesNotHaveIsRefused) {
  const ModelInfo info{.n_layers = 4, .n_kv_heads = 2};
  EXPECT_TRUE(check_explain_at(asked("3:1"), info).ok());
  for (const char* text : {"4", "0:2"}) {
    const Status status = check_explain_at(asked(text), info);
    ASSERT_FALSE(status.ok()) << text;
    EXPECT_NE(status.error().message.find("layers 0 to 3 with kv heads 0 to 1"), std::string::npos);
  }
}

ExplainReport report_of_two() {
  ExplainReport report;
  report.explanation = {.n_tokens = 1200, .n_judged = 900, .n_layers = 3, .n_heads = 6, .part_names = {"attention"}};
  report.explanation.best = {{.position = 1034,
                              .token = 7,
                              .rank = 0.75,
                              .score = 2.5,
                              .parts = {0.125},
                              .n_judged = 6,
                              .held_by = {{0, 0}, {0, 1}, {2, 1}}}};
  report.explanation.worst = {{.position = 8, .token = 9, .score = -1, .parts = {NAN}, .n_judged = 1}};
  report.best_texts = {" Paris"};
  report.worst_texts = {"\n"};
  report.layers = {{.evictions = 2, .policy_ms = 1.5, .heads = {{.rows = 3, .evicted = 4}, {.rows = 5, .evicted = 2}}}};
  return report;
}

TEST(ExplainText, ShowsWhoHoldsATokenByLayer) {
  const std::string text = explain_text(report_of_two());
  EXPECT_NE(text.find("900 of 1,200 tokens were judged in 6 kv heads of 3 layers"), std::string::npos) << text;
  EXPECT_NE(text.find("     1,034  ' Paris'                0.750        2.5       0.125       3/6  2.1\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("         8  '\\n'                    0.000         -1           -       0/6  ...\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("      0          8         6          2"), std::string::npos) << text;
  ExplainReport nothing = report_of_two();
  nothing.explanation.n_judged = 0;
  EXPECT_EQ(explain_text(nothing).find("nothing was evicted"), 0U);
}

TEST(ExplainJson, SaysTheSame) {
  const auto json = nlohmann::json::parse(explain_json(report_of_two(), "andpro"));
  EXPECT_EQ(json["policy"], "andpro");
  EXPECT_EQ(json["layer"], nullptr);
  EXPECT_EQ(json["best"][0]["text"], " Paris");
  EXPECT_EQ(json["best"][0]["parts"]["attention"], 0.125);
  EXPECT_EQ(json["best"][0]["held_by"], nlohmann::json::parse("[[0,0],[0,1],[2,1]]"));
  EXPECT_EQ(json["worst"][0]["parts"]["attention"], nullptr);
  EXPECT_EQ(json["layers"][0]["heads"][1]["rows"], 5);
}

}  // namespace
}  // namespace kedge::cli
