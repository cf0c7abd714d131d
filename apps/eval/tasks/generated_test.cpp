// What holds for every task that makes its samples from the user's text.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <set>

#include "eval/fake_tokenizer.h"
#include "eval/task.h"

namespace kedge::eval {
namespace {

// Prose with a large vocabulary, for the tasks that list words.
std::string rich_prose() {
  std::string text = prose(1200);
  for (int i = 0; i < 3000; ++i) {
    std::string word = "w";
    for (int rest = i + 30; rest > 0; rest /= 20)
      word += static_cast<char>('a' + rest % 20);
    text += " " + word + "en" + (i % 12 == 11 ? "." : "");
  }
  return text;
}

class GeneratedTask : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    std::ranges::replace(name, '/', '_');
    path_ = testing::TempDir() + "kedge_generated_" + name;
    std::ofstream(path_, std::ios::binary) << rich_prose();
  }
  void TearDown() override { std::remove(path_.c_str()); }

  TaskRequest request(const Tokenizer& tokenizer, uint64_t seed) const {
    const Result<TaskChoice> choice = parse_task(GetParam());
    EXPECT_TRUE(choice.ok()) << choice.error().message;
    return {.tokenizer = tokenizer,
            .file = path_,
            .lengths = tokenizer.tokenize("abc").size() == 1 ? std::vector<int64_t>{600, 997, 2500}
                                                             : std::vector<int64_t>{4000, 6001, 20000},
            .depths = {0, 0.37, 1},
            .samples = 3,
            .seed = seed,
            .options = choice->options};
  }

  std::unique_ptr<Task> make(const TaskRequest& request) const {
    Result<std::unique_ptr<Task>> task = parse_task(GetParam())->info->make(request);
    EXPECT_TRUE(task.ok()) << task.error().message;
    return task.ok() ? *std::move(task) : nullptr;
  }

  std::string path_;
};

Sample sample_at(Task& task, int64_t index) {
  Result<Sample> sample = task.sample(index);
  EXPECT_TRUE(sample.ok()) << sample.error().message;
  return sample.ok() ? *std::move(sample) : Sample{.questions = {Question{}}};
}

TEST_P(GeneratedTask, LengthsAreExactAndAnswersAreThere) {
  for (const Tokenizer& tokenizer : {byte_tokenizer(), word_tokenizer()}) {
    const TaskRequest asked = request(tokenizer, 0);
    const auto task = make(asked);
    ASSERT_NE(task, nullptr);
    EXPECT_EQ(task->n_skipped(), 0);
    std::set<std::string> ids;
    for (int64_t i = 0; i < task->n_samples(); ++i) {
      const Sample sample = sample_at(*task, i);
      EXPECT_TRUE(ids.insert(sample.id).second) << sample.id;
      ASSERT_FALSE(sample.questions.empty());
      size_t longest = 0;
      const std::string context = tokenizer.detokenize(sample.context);
      for (const Question& question : sample.questions) {
        longest = std::max(longest, tokenizer.tokenize(question.text).size());
        EXPECT_FALSE(question.answers.empty());
        EXPECT_GT(question.max_tokens, 0);
        for (const std::string& answer : question.answers) {
          EXPECT_NE(context.find(answer), std::string::npos) << sample.id << ": " << answer;
          EXPECT_EQ(question.text.find(answer), std::string::npos) << sample.id << ": " << answer;
        }
      }
      EXPECT_EQ(static_cast<int64_t>(sample.context.size() + longest), sample.length) << sample.id;
      EXPECT_NE(std::ranges::find(asked.lengths, sample.length), asked.lengths.end());
    }
  }
}

TEST_P(GeneratedTask, OrderAndGridChangeNothingAndSeedsDo) {
  const Tokenizer tokenizer = byte_tokenizer();
  const TaskRequest asked = request(tokenizer, 5);
  const auto forward = make(asked), backward = make(asked);
  TaskRequest smaller = asked;
  smaller.lengths = {asked.lengths[1]};
  smaller.depths = {0.37};
  smaller.samples = 1;
  const auto other_grid = make(smaller);
  TaskRequest reseeded = asked;
  reseeded.seed = 6;
  const auto other_seed = make(reseeded);
  ASSERT_TRUE(forward && backward && other_grid && other_seed);
  std::vector<Sample> samples(static_cast<size_t>(forward->n_samples()));
  for (int64_t i = 0; i < forward->n_samples(); ++i)
    samples[static_cast<size_t>(i)] = sample_at(*forward, i);
  std::set<std::vector<Token>> contexts;
  bool found = false;
  const Sample alone = sample_at(*other_grid, 0);
  for (int64_t i = forward->n_samples() - 1; i >= 0; --i) {
    const Sample& first = samples[static_cast<size_t>(i)];
    const Sample again = sample_at(*backward, i);
    EXPECT_EQ(again.id, first.id);
    EXPECT_EQ(again.context, first.context) << first.id;
    EXPECT_EQ(again.questions[0].answers, first.questions[0].answers);
    EXPECT_NE(sample_at(*other_seed, i).context, first.context) << first.id;
    contexts.insert(first.context);
    if (first.id == alone.id) {
      found = true;
      EXPECT_EQ(alone.context, first.context);
    }
  }
  EXPECT_EQ(contexts.size(), samples.size());  // repetitions differ
  EXPECT_TRUE(found);
}

TEST_P(GeneratedTask, BadInputIsAnErrorThatSaysWhat) {
  TaskRequest asked = request(byte_tokenizer(), 0);
  const auto message = [&asked] {
    const Result<std::unique_ptr<Task>> task = parse_task(GetParam())->info->make(asked);
    if (!task)
      return task.error().message;
    const Result<Sample> sample = (*task)->sample(0);
    return sample.ok() ? std::string() : sample.error().message;
  };
  asked.lengths = {30};
  EXPECT_NE(message().find("length"), std::string::npos) << message();
  if (!GetParam().starts_with("fwe")) {  // which repeats words as often as it takes
    asked.lengths = {3'000'000};
    EXPECT_NE(message().find("text"), std::string::npos) << message();
  }
  asked.file = path_ + "-missing";
  EXPECT_NE(message().find("-missing"), std::string::npos) << message();
  asked.file = "";
  EXPECT_NE(message().find("-f"), std::string::npos) << message();
  std::ofstream(path_, std::ios::binary | std::ios::trunc) << " \n\n";
  asked.file = path_;
  EXPECT_NE(message().find("is empty"), std::string::npos) << message();
}

INSTANTIATE_TEST_SUITE_P(Tasks, GeneratedTask,
                         testing::Values("needle", "needle:keys=4,kind=words", "needle:keys=3,values=2,queries=2",
                                         "needle:kind=uuids,keys=2", "passkey", "vt", "vt:chains=3,hops=2", "cwe",
                                         "cwe:common=3,repeats=12,others=4", "fwe", "fwe:alpha=1.5", "qa",
                                         "qa:hops=2,facts=6", "dialogue", "dialogue:facts=6,questions=6"),
                         [](const auto& instance) {
                           std::string name = instance.param;
                           std::ranges::replace_if(
                               name, [](char c) { return !std::isalnum(c); }, '_');
                           return name;
                         });

// The sample of one request, as text.
struct Made {
  std::string context;
  std::vector<Question> questions;
  double depth = -1;
};

class OneTask : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "kedge_one_task";
    std::ofstream(path_, std::ios::binary) << rich_prose();
  }
  void TearDown() override { std::remove(path_.c_str()); }

  Made make(const std::string& text, int64_t length, double depth) const {
    const Result<TaskChoice> choice = parse_task(text);
    EXPECT_TRUE(choice.ok()) << choice.error().message;
    const Tokenizer tokenizer = byte_tokenizer();
    Result<std::unique_ptr<Task>> task = choice->info->make({.tokenizer = tokenizer,
                                                             .file = path_,
                                                             .lengths = {length},
                                                             .depths = {depth},
                                                             .samples = 1,
                                                             .options = choice->options});
    EXPECT_TRUE(task.ok()) << task.error().message;
    EXPECT_EQ((*task)->n_samples(), 1);
    Sample sample = sample_at(**task, 0);
    return {tokenizer.detokenize(sample.context), std::move(sample.questions), sample.depth};
  }

  std::string path_;
};

size_t count(const std::string& text, const std::string& word) {
  size_t n = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + word.size()))
    ++n;
  return n;
}

TEST_F(OneTask, NeedleLiesAtItsDepth) {
  for (const double depth : {0.0, 0.25, 0.5, 0.75, 1.0}) {
    for (const char* text : {"needle", "needle:keys=8", "passkey"}) {
      const Made made = make(text, 12000, depth);
      EXPECT_EQ(made.depth, depth);
      const auto at = static_cast<double>(made.context.find(made.questions[0].answers[0]));
      EXPECT_NEAR(at / static_cast<double>(made.context.size()), depth, 0.05) << text;
    }
  }
}

TEST_F(OneTask, NeedleKeysValuesQueries) {
  const Made made = make("needle:keys=3,values=2,queries=2", 6000, 0.5);
  EXPECT_EQ(made.depth, -1);  // the answers are at four places
  EXPECT_EQ(made.questions[0].answers.size(), 4U);
  EXPECT_EQ(made.questions[0].metric, "contains_all");
  EXPECT_EQ(count(made.context, "One of the special magic numbers for "), 6U);
  EXPECT_EQ(make("needle", 6000, 0.5).questions[0].metric, "contains");
}

TEST_F(OneTask, VariablesComeInOrder) {
  const Made made = make("vt:chains=2,hops=3", 6000, 0);
  const std::vector<std::string>& answers = made.questions[0].answers;
  ASSERT_EQ(answers.size(), 4U);
  EXPECT_EQ(count(made.context, "VAR "), 2 * (4 + 3U));
  size_t last = 0;
  for (size_t i = 1; i < answers.size(); ++i) {
    const size_t at = made.context.find("VAR " + answers[i] + " = VAR " + answers[i - 1] + ".");
    ASSERT_NE(at, std::string::npos);
    EXPECT_GT(at, last);
    last = at;
  }
}

TEST_F(OneTask, CommonWordsAreTheMostCommon) {
  const Made made = make("cwe:common=3,repeats=9,others=2", 3000, 0);
  for (const std::string& answer : made.questions[0].answers)
    EXPECT_EQ(count(made.context, answer), 9U);
  std::map<std::string, size_t> counts;
  for (size_t at = made.context.find(". "); at != std::string::npos; at = made.context.find(". ", at + 1)) {
    const size_t end = std::min(made.context.find(' ', at + 2), made.context.size());
    ++counts[made.context.substr(at + 2, end - at - 2)];
  }
  EXPECT_EQ(std::ranges::count_if(counts, [](const auto& entry) { return entry.second > 2; }), 3);
}

TEST_F(OneTask, FrequentWordsLead) {
  const Made made = make("fwe", 4000, 0);
  std::map<std::string, size_t> counts;
  const std::string words = made.context.substr(made.context.find('\n') + 1) + " ";
  for (size_t begin = 0, end = words.find(' '); end != std::string::npos; begin = end + 1, end = words.find(' ', begin))
    ++counts[words.substr(begin, end - begin)];
  const std::vector<std::string>& answers = made.questions[0].answers;
  ASSERT_EQ(answers.size(), 3U);
  EXPECT_GT(counts[answers[0]], counts[answers[1]]);
  EXPECT_GT(counts[answers[1]], counts[answers[2]]);
  const size_t third = counts[answers[2]];
  EXPECT_EQ(std::ranges::count_if(counts, [third](const auto& entry) { return entry.second >= third; }), 3);
}

TEST_F(OneTask, DocumentsAreNumbered) {
  const Made made = make("qa:hops=2,facts=3,document_tokens=500", 6000, 0);
  EXPECT_EQ(count(made.context, " works for "), 3U);
  EXPECT_EQ(count(made.context, "The office of "), 3U);
  for (int i = 1; i <= 11; ++i)
    EXPECT_EQ(count(made.context, "Document " + std::to_string(i) + ":"), 1U) << i;
  EXPECT_LT(made.context.find("Document 2:"), made.context.find("Document 11:"));
}

TEST_F(OneTask, TurnsTakeTurns) {
  const Made made = make("dialogue:facts=5,questions=3", 8000, 0);
  EXPECT_EQ(made.questions.size(), 3U);
  EXPECT_EQ(count(made.context, "User:"), count(made.context, "Assistant:"));
  EXPECT_GT(count(made.context, "User:"), 40U);
  EXPECT_TRUE(made.context.ends_with("Assistant: I have read all of it."));
}

TEST_F(OneTask, OptionsThatContradict) {
  const auto message = [this](const std::string& text) {
    const Result<TaskChoice> choice = parse_task(text);
    const auto task = choice->info->make({.tokenizer = byte_tokenizer(), .file = path_, .options = choice->options});
    return task.ok() ? std::string() : task.error().message;
  };
  EXPECT_NE(message("needle:keys=2,queries=3").find("needle:queries=3"), std::string::npos);
  EXPECT_NE(message("dialogue:facts=2,questions=3").find("dialogue:questions=3"), std::string::npos);
}

}  // namespace
}  // namespace kedge::eval
