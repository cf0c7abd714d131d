#include "verbs.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "console.h"
#include "help.h"
#include "kedge/policy.h"
#include "options.h"
#include "prompt.h"

namespace kedge::cli {
namespace {

struct Outcome {
  int code = 0;
  std::string out;
  std::string err;
};

Outcome run(int (*verb)(const Settings&), const Settings& settings) {
  Outcome outcome;
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  EXPECT_TRUE(open_log(false, "").ok());
  outcome.code = verb(settings);
  outcome.out = testing::internal::GetCapturedStdout();
  outcome.err = testing::internal::GetCapturedStderr();
  return outcome;
}

// A mistake: its exit code, one line on standard error that says `what`, nothing on standard output.
void expect_mistake(const Outcome& outcome, int code, const std::string& what) {
  EXPECT_EQ(outcome.code, code) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_TRUE(outcome.err.starts_with("kedge: error: ")) << outcome.err;
  EXPECT_EQ(outcome.err.find('\n'), outcome.err.size() - 1) << outcome.err;
  EXPECT_NE(outcome.err.find(what), std::string::npos) << outcome.err;
}

Settings prompt_of(const std::string& text) {
  Settings settings;
  settings.model = "/nonexistent.gguf";
  settings.prompt = text;
  return settings;
}

TEST(RunVerb, MistakesWithoutAModel) {
  Settings settings = prompt_of("x");
  expect_mistake(run(run_verb, settings), 3, "/nonexistent.gguf");
  settings.kv_budget = "12";
  expect_mistake(run(run_verb, settings), 2, "12");
  settings = prompt_of("x");
  settings.kv_policy = "andpor";
  expect_mistake(run(run_verb, settings), 2, "andpro");
  settings = prompt_of("x");
  settings.stats = "/nonexistent/folder/s.json";
  expect_mistake(run(run_verb, settings), 1, "/nonexistent/folder/s.json");
  settings = prompt_of("x");
  settings.file = "/nonexistent.txt";
  expect_mistake(run(run_verb, settings), 1, "/nonexistent.txt");
  settings = prompt_of("x");
  settings.model = "";
  expect_mistake(run(run_verb, settings), 2, "KEDGE_MODEL");
  settings = prompt_of("x");
  settings.positional = {"stray"};
  expect_mistake(run(run_verb, settings), 2, "'stray'");
}

TEST(PerplexityVerb, MistakesWithoutAModel) {
  Settings settings;
  settings.file = "/dev/null";
  expect_mistake(run(perplexity_verb, settings), 2, "KEDGE_MODEL");
  settings.model = "/nonexistent.gguf";
  expect_mistake(run(perplexity_verb, settings), 3, "/nonexistent.gguf");
  settings.file = "/nonexistent.txt";
  expect_mistake(run(perplexity_verb, settings), 1, "/nonexistent.txt");
}

TEST(InspectVerb, MistakesWithoutAModel) {
  Settings settings;
  expect_mistake(run(inspect_verb, settings), 2, "KEDGE_MODEL");
  settings.positional = {"/nonexistent.gguf"};
  expect_mistake(run(inspect_verb, settings), 3, "/nonexistent.gguf");
  settings.positional = {"a", "b"};
  expect_mistake(run(inspect_verb, settings), 2, "'b'");
}

TEST(PoliciesVerb, ListsTheRegistry) {
  const Outcome listing = run(policies_verb, {});
  EXPECT_EQ(listing.code, 0);
  Settings settings;
  settings.json = true;
  const auto json = nlohmann::json::parse(run(policies_verb, settings).out);
  const std::vector<PolicyMethod> methods = list_policies();
  ASSERT_EQ(json.size(), methods.size());
  for (size_t i = 0; i < methods.size(); ++i) {
    EXPECT_EQ(json[i]["name"], methods[i].name);
    EXPECT_EQ(json[i]["options"].size(), methods[i].options.size());
    EXPECT_FALSE(json[i]["source"].get<std::string>().empty()) << methods[i].name;
    EXPECT_NE(listing.out.find(methods[i].name), std::string::npos);
  }
}

TEST(PoliciesVerb, EveryMethodSaysWhatItCostsAndNeeds) {
  Settings settings;
  settings.json = true;
  for (const auto& method : nlohmann::json::parse(run(policies_verb, settings).out)) {
    const std::string where = method["name"];
    if (method["role"] == "schedule") {
      EXPECT_GE(method["properties"].size(), 3U) << where;
      continue;
    }
    EXPECT_FALSE(method["cost"].get<std::string>().empty()) << where;
    EXPECT_TRUE(method["needs"]["window_queries"].is_number_integer()) << where;
    for (const char* need : {"values", "attention_sum", "query_moments", "second_pass", "output_weights", "tokens"})
      EXPECT_TRUE(method["needs"][need].is_boolean()) << where << " " << need;
    if (method["role"] == "allocator") {
      EXPECT_TRUE(method["layers"] == "equal" || method["layers"] == "weighted" || method["layers"] == "shared");
      continue;
    }
    EXPECT_NE(method["defaults"].get<std::string>().find('/'), std::string::npos) << where;
    EXPECT_EQ(method["example"]["score"].size(), 6U) << where;
    std::vector<int> kept = method["example"]["kept"];
    std::ranges::sort(kept);
    EXPECT_EQ(kept, (std::vector<int>{0, 1, 2, 3, 4, 5})) << where;
  }
}

TEST(PoliciesVerb, AndProInFull) {
  Settings settings;
  settings.json = true;
  settings.positional = {"andpro"};
  const auto method = nlohmann::json::parse(run(policies_verb, settings).out).at(0);
  EXPECT_EQ(method["needs"]["window_queries"], 32);
  EXPECT_EQ(method["needs"]["values"], true);
  EXPECT_EQ(method["needs"]["second_pass"], false);
  settings.json = false;
  settings.positional = {"snapkv"};
  const std::string page = run(policies_verb, settings).out;
  for (const char* words : {"also called: snap_kv", "needs: last 32 queries, K and V rows", "kept in the order 5 0 4"})
    EXPECT_NE(page.find(words), std::string::npos) << words << " in\n" << page;
}

TEST(PoliciesVerb, OneMethodAndItsOptions) {
  Settings settings;
  settings.positional = {"andpro"};
  const Outcome page = run(policies_verb, settings);
  EXPECT_EQ(page.code, 0);
  for (const PolicyMethod& method : list_policies()) {
    if (method.name != "andpro")
      continue;
    for (const PolicyOption& option : method.options) {
      EXPECT_NE(page.out.find(option.name + "=" + option.fallback), std::string::npos) << page.out;
    }
  }
  settings.positional = {"andpor"};
  expect_mistake(run(policies_verb, settings), 2, "'andpro'");
}

TEST(Help, ReferenceNamesEveryPolicyAndVerb) {
  const std::string page = markdown_page();
  for (const PolicyMethod& method : list_policies()) {
    EXPECT_NE(page.find("### " + method.name + " (" + method.role + ")"), std::string::npos) << method.name;
  }
  for (const VerbSpec& verb : verbs()) {
    EXPECT_NE(page.find("| `kedge " + std::string(verb.name)), std::string::npos) << verb.name;
    EXPECT_NE(help_page().find("  " + std::string(verb.name) + " "), std::string::npos) << verb.name;
  }
}

TEST(Prompt, FileThenPrompt) {
  Settings settings;
  settings.file = "/dev/null";
  settings.prompt = "then this";
  EXPECT_EQ(*read_prompt(settings), "then this");
}

TEST(Prompt, ContextErrorHasBothNumbers) {
  Settings settings;
  EXPECT_TRUE(check_context(settings, 1000000).ok());  // not given: the session decides
  settings.ctx_size = 100;
  EXPECT_TRUE(check_context(settings, 100).ok());
  const Status status = check_context(settings, 101);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::context_too_long);
  EXPECT_NE(status.error().message.find("101"), std::string::npos);
  EXPECT_NE(status.error().message.find("100"), std::string::npos);
  settings.kv_overflow = "truncate";
  EXPECT_TRUE(check_context(settings, 101).ok());
}

TEST(Prompt, SeedIsTheOneGivenOrARealOne) {
  Settings settings;
  settings.seed = 7;
  EXPECT_EQ(resolve_seed(settings), 7U);
  settings.seed = -1;
  EXPECT_NE(resolve_seed(settings), 0xFFFFFFFFU);
  EXPECT_EQ(sampler_options(settings, 9).seed, 9U);
}

}  // namespace
}  // namespace kedge::cli
