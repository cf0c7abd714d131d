#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "eval/fake_tokenizer.h"
#include "eval/task.h"

namespace kedge::eval {
namespace {

class JsonLinesTest : public testing::Test {
 protected:
  void SetUp() override { path_ = testing::TempDir() + "kedge_lines.jsonl"; }
  void TearDown() override { std::remove(path_.c_str()); }

  Result<std::unique_ptr<Task>> make(const std::string& content, const std::string& options = "",
                                     bool skip_bad = false) const {
    std::ofstream(path_, std::ios::binary) << content;
    const Result<TaskChoice> choice = parse_task(options.empty() ? "jsonl" : "jsonl:" + options);
    EXPECT_TRUE(choice.ok()) << choice.error().message;
    return choice->info->make(
        {.tokenizer = byte_tokenizer(), .file = path_, .skip_bad = skip_bad, .options = choice->options});
  }

  // The message without the path, "3: field ...".
  std::string message(const std::string& content, const std::string& options = "") const {
    const Result<std::unique_ptr<Task>> task = make(content, options);
    EXPECT_FALSE(task.ok()) << content.substr(0, 100);
    if (task.ok())
      return "";
    EXPECT_EQ(task.error().code, ErrorCode::failed);
    const std::string text = task.error().message;
    EXPECT_EQ(text.find('\n'), std::string::npos);
    return text.starts_with(path_ + ":") ? text.substr(path_.size() + 1) : text;
  }

  std::string path_;
};

const std::string kGood =
    R"({"context": "The sky is green.", "question": "Colour?", "answers": ["green", "viridian"]})";

TEST_F(JsonLinesTest, OwnLines) {
  const auto task = make("\xEF\xBB\xBF" + kGood + "\r\n\n" +
                         R"({"context":"é","question":"q","answers":"one","metric":"f1","max_tokens":7,"note":1})");
  ASSERT_TRUE(task.ok()) << task.error().message;
  ASSERT_EQ((*task)->n_samples(), 2);
  const Result<Sample> second = (*task)->sample(1);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(second->id, "jsonl-3");
  EXPECT_EQ(byte_tokenizer().detokenize(second->context), "é");
  EXPECT_EQ(second->questions[0].metric, "f1");
  EXPECT_EQ(second->questions[0].max_tokens, 7);
  EXPECT_EQ(second->questions[0].answers, (std::vector<std::string>{"one"}));
  const Result<Sample> first = (*task)->sample(0);
  EXPECT_EQ(first->id, "jsonl-1");
  EXPECT_EQ(first->questions[0].text, "\n\nQuestion: Colour?\nAnswer:");
  EXPECT_EQ(first->questions[0].metric, "contains");
  EXPECT_EQ(first->length, 17 + 27);
}

TEST_F(JsonLinesTest, VerbatimAndLimit) {
  const auto task = make(kGood + "\n" + kGood + "\n" + kGood, "wrap=no,limit=2");
  ASSERT_TRUE(task.ok()) << task.error().message;
  EXPECT_EQ((*task)->n_samples(), 2);
  EXPECT_EQ((*task)->sample(1)->questions[0].text, "Colour?");
}

TEST_F(JsonLinesTest, LongBench) {
  const auto line = [](const std::string& dataset, const std::string& input) {
    return R"({"input": ")" + input + R"(", "context": "Long text.", "answers": ["a"], "length": 2, "dataset": ")" +
           dataset + R"(", "language": "en", "all_classes": null, "_id": "x1"})" + "\n";
  };
  const auto task = make(line("hotpotqa", "Who?") + line("gov_report", "") + line("lcc_e", "") + line("trec", "Type?"));
  ASSERT_TRUE(task.ok()) << task.error().message;
  const Question qa = (*task)->sample(0)->questions[0], report = (*task)->sample(1)->questions[0];
  const Question code = (*task)->sample(2)->questions[0];
  EXPECT_EQ(qa.text, "\n\nWho?\nAnswer:");
  EXPECT_EQ(qa.metric, "f1");
  EXPECT_EQ(qa.max_tokens, 32);
  EXPECT_EQ(report.metric, "rouge_l");
  EXPECT_FALSE(report.stop_at_newline);
  EXPECT_EQ(code.metric, "edit");
  EXPECT_EQ((*task)->sample(3)->questions[0].metric, "contains");
  EXPECT_NE(message(line("hotpot", "Who?")).find("1: field 'dataset': 'hotpot' is none of LongBench's"),
            std::string::npos);
}

TEST_F(JsonLinesTest, Ruler) {
  const std::string niah =
      R"({"index": 0, "input": "Some magic numbers are hidden.\nText text.\nWhat are all the special magic numbers )"
      R"(for a, and b mentioned in the provided text?", "outputs": ["11", "22"], "length": 30, )"
      R"("answer_prefix": " The special magic numbers are"})";
  const std::string qa =
      R"({"index": 1, "input": "Answer the question based on the given documents.\n\nDocument 1:\nText\n\nQuestion: )"
      R"(Who?\nAnswer:", "outputs": ["Ann", "Anne"], "length": 30})";
  const auto task = make(niah + "\n" + qa + "\n");
  ASSERT_TRUE(task.ok()) << task.error().message;
  const Result<Sample> first = (*task)->sample(0), second = (*task)->sample(1);
  EXPECT_EQ(byte_tokenizer().detokenize(first->context), "Some magic numbers are hidden.\nText text.");
  EXPECT_EQ(first->questions[0].text,
            "\nWhat are all the special magic numbers for a, and b mentioned in the provided text? The special magic "
            "numbers are");
  EXPECT_EQ(first->questions[0].metric, "contains_all");
  EXPECT_EQ(second->questions[0].text, "\nQuestion: Who?\nAnswer:");
  EXPECT_EQ(second->questions[0].metric, "contains");
  EXPECT_NE(message(R"({"input": "no line of its own", "outputs": ["x"]})").find("1: field 'input'"),
            std::string::npos);
}

TEST_F(JsonLinesTest, ErrorsNameLineAndField) {
  const auto second = [this](const std::string& line) { return message(kGood + "\n" + line + "\n" + kGood); };
  EXPECT_EQ(second(R"({"context": "c", "answers": ["a"]})"), "2: field 'question': is missing");
  EXPECT_EQ(second(R"({"context": 5, "question": "q", "answers": ["a"]})"),
            "2: field 'context': must be a text, not 5");
  EXPECT_EQ(second(R"({"context": "", "question": "q", "answers": ["a"]})"), "2: field 'context': is empty");
  EXPECT_EQ(second(R"({"context": "c", "question": "q", "answers": []})"), "2: field 'answers': is empty");
  EXPECT_EQ(second(R"({"context": "c", "question": "q", "answers": ["a", " "]})"),
            "2: field 'answers': holds an empty answer");
  EXPECT_EQ(second(R"({"context": "c", "question": "q", "answers": [["a"]]})"),
            "2: field 'answers': must hold texts only, not [\"a\"]");
  EXPECT_EQ(second(R"({"context": "c", "question": "q", "answers": null})"),
            "2: field 'answers': must be a list of texts, not null");
  EXPECT_EQ(second(R"({"context": "c", "question": "q", "answers": ["a"], "metric": "fl"})"),
            "2: field 'metric': there is no \"fl\": did you mean 'f1'?");
  for (const char* tokens : {"0", "-1", "1.5", "4097", "1e99", "18446744073709551615", "\"8\""}) {
    EXPECT_NE(
        second(R"({"context": "c", "question": "q", "answers": ["a"], "max_tokens": )" + std::string(tokens) + "}")
            .find("2: field 'max_tokens': must be a whole number from 1 to 4096"),
        std::string::npos)
        << tokens;
  }
  EXPECT_NE(second(R"({"context": "c", )").find("2: not JSON: wrong at byte "), std::string::npos);
  EXPECT_EQ(second("[1, 2]"), "2: not a JSON object but [1,2]");
  EXPECT_EQ(second("{\"context\": \"\xff\"}"), "2: invalid UTF-8 at byte 14");
  EXPECT_EQ(second(std::string(100'000, '[')), "2: nested 100000 deep, at most 64 are allowed");
  EXPECT_NE(second("{\"context\": \"" + std::string(10'000'000, 'x') + "\"}").find("2: the line has 10000015 bytes"),
            std::string::npos);
  EXPECT_NE(make("\n \n").error().message.find("is empty"), std::string::npos);
  EXPECT_NE(message(kGood, "format=ruler").find("1: field 'input': is missing"), std::string::npos);
}

TEST_F(JsonLinesTest, BadLinesCanBeSkipped) {
  const std::string bad = "{\n" + std::string(3000, '{') + "\n{\"context\": \"\xc3\"}\n\"" +
                          std::string(9'000'000, 'x') +
                          "\"\n{\"context\": \"c\", \"question\": \"q\", \"answers\": []}\n";
  const auto task = make(kGood + "\n" + bad + kGood + "\n", "", true);
  ASSERT_TRUE(task.ok()) << task.error().message;
  EXPECT_EQ((*task)->n_samples(), 2);
  EXPECT_EQ((*task)->n_skipped(), 5);
  EXPECT_EQ((*task)->sample(1)->id, "jsonl-7");
  EXPECT_EQ((*task)->sample(1)->questions[0].answers[0], "green");
  const auto none = make(bad, "", true);
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.error().message.find("all 5 are bad"), std::string::npos);
}

TEST_F(JsonLinesTest, ALongLineIsRead) {
  const std::string text(7'000'000, 'x');
  const auto task = make(R"({"context": ")" + text + R"(", "question": "q", "answers": ["a"]})");
  ASSERT_TRUE(task.ok()) << task.error().message;
  EXPECT_EQ((*task)->sample(0)->context.size(), text.size());
}

}  // namespace
}  // namespace kedge::eval
