#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "eval/metrics.h"
#include "eval/task.h"

namespace kedge::eval {
namespace {

std::string message(std::string_view text) {
  const Result<TaskChoice> choice = parse_task(text);
  EXPECT_FALSE(choice.ok()) << text;
  if (choice.ok())
    return "";
  EXPECT_EQ(choice.error().code, ErrorCode::usage) << text;
  EXPECT_EQ(choice.error().message.find('\n'), std::string::npos);
  return choice.error().message;
}

TEST(TaskList, EveryTaskIsComplete) {
  std::set<std::string> names;
  for (const TaskInfo& info : tasks()) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_FALSE(info.summary.empty()) << info.name;
    EXPECT_FALSE(info.source.empty()) << info.name;
    EXPECT_TRUE((std::set<std::string>{"text", "folder", "lines", "none"}).contains(info.input)) << info.name;
    EXPECT_NE(info.make, nullptr) << info.name;
    const Result<TaskChoice> choice = parse_task(info.name);
    ASSERT_TRUE(choice.ok()) << choice.error().message;
    EXPECT_EQ(choice->info, &info);
    EXPECT_EQ(choice->options.size(), info.options.size());
    // What it resolves to means the same, and every fallback is a value that the option takes.
    const Result<TaskChoice> again = parse_task(choice->text);
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(again->text, choice->text);
  }
  EXPECT_TRUE(std::ranges::is_sorted(tasks(), {}, &TaskInfo::name));
  EXPECT_TRUE(names.contains("needle"));
}

TEST(ParseTask, OptionsAndDefaults) {
  const Result<TaskChoice> choice = parse_task("needle:values=2,keys=04");
  ASSERT_TRUE(choice.ok()) << choice.error().message;
  EXPECT_EQ(choice->options.at("keys"), "4");
  EXPECT_EQ(choice->options.at("values"), "2");
  EXPECT_EQ(choice->options.at("queries"), "1");
  EXPECT_EQ(choice->text, "needle:keys=4,values=2,queries=1,kind=numbers");
}

TEST(ParseTask, ErrorsNameWhatWasFoundAndTheNearest) {
  EXPECT_NE(message("needel").find("did you mean 'needle'"), std::string::npos);
  EXPECT_NE(message("").find("unknown task ''"), std::string::npos);
  EXPECT_NE(message("needle:kyes=2").find("did you mean 'keys'"), std::string::npos);
  EXPECT_NE(message("needle:keys=0").find("from 1 to"), std::string::npos);
  EXPECT_NE(message("needle:keys=99999999999999999999").find("keys=99999999999999999999"), std::string::npos);
  EXPECT_NE(message("needle:keys=2x").find("whole number"), std::string::npos);
  EXPECT_NE(message("needle:keys").find("needs a value"), std::string::npos);
  EXPECT_NE(message("needle:keys=1,keys=2").find("twice"), std::string::npos);
  EXPECT_NE(message("needle:kind=colours").find("one of words, numbers, uuids"), std::string::npos);
  EXPECT_NE(message("needle:").find("no option ''"), std::string::npos);
  EXPECT_NE(message("needle:keys=1,").find("no option ''"), std::string::npos);
}

}  // namespace
}  // namespace kedge::eval
