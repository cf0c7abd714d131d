#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "eval/fake_tokenizer.h"
#include "eval/source_files.h"
#include "eval/task.h"

namespace kedge::eval {
namespace {

namespace fs = std::filesystem;

class CodeTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "kedge_code_test";
    fs::remove_all(folder_);
    fs::create_directories(folder_ + "/sub/.hidden");
    for (int i = 0; i < 30; ++i) {
      std::string name = "/f";
      write(name.append(std::to_string(i)).append(".cpp"), source(i));
    }
    write("/sub/a.py", "def first_function():\n    return another_value\n");
    write("/sub/.hidden/b.py", "print('not to be read')\n");
    write("/notes.txt", "not a source file\n");
    write("/binary.c", std::string("int x;\0", 7));
  }
  void TearDown() override { fs::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + name, std::ios::binary) << text;
  }

  static std::string source(int i) {
    std::string text;
    for (int line = 0; line < 20; ++line)
      text.append("  auto value_").append(std::to_string(i * 100 + line)).append(" = compute(something);\n}\n");
    return text;
  }

  Result<std::unique_ptr<Task>> make(const std::string& spec, int64_t length, uint64_t seed = 0) const {
    const Result<TaskChoice> choice = parse_task(spec);
    EXPECT_TRUE(choice.ok()) << choice.error().message;
    return choice->info->make({.tokenizer = byte_tokenizer(),
                               .file = folder_,
                               .lengths = {length},
                               .samples = 20,
                               .seed = seed,
                               .options = choice->options});
  }

  std::string folder_;
};

TEST_F(CodeTest, TheNextLineOfTheText) {
  const Tokenizer tokenizer = byte_tokenizer();
  const std::string all = read_source_files(folder_, "auto")->text;
  for (const char* spec : {"code", "code:lines=4", "code:ext=cpp"}) {
    const auto task = make(spec, 3001), again = make(spec, 3001), other = make(spec, 3001, 9);
    ASSERT_TRUE(task.ok() && again.ok() && other.ok());
    std::set<std::string> ids;
    int n_same = 0;
    for (int64_t i = 19; i >= 0; --i) {
      const Result<Sample> sample = (*task)->sample(i);
      ASSERT_TRUE(sample.ok()) << sample.error().message;
      EXPECT_TRUE(ids.insert(sample->id).second);
      const Question& question = sample->questions[0];
      EXPECT_EQ(sample->context.size() + question.text.size(), 3001U);
      EXPECT_TRUE(question.text.ends_with('\n'));
      EXPECT_EQ(question.metric, "edit");
      EXPECT_EQ(std::ranges::count(question.text, '\n'), std::string(spec) == "code:lines=4" ? 4 : 1);
      // It is what stands in the files, from one place or around their end.
      const std::string context = tokenizer.detokenize(sample->context);
      EXPECT_NE(all.find(context.substr(context.size() - 15) + question.text + question.answers[0] + "\n"),
                std::string::npos);
      EXPECT_EQ(context.find(question.answers[0]), std::string::npos);
      EXPECT_EQ((*again)->sample(i)->context, sample->context);
      n_same += (*other)->sample(i)->context == sample->context ? 1 : 0;
    }
    EXPECT_LT(n_same, 5);
  }
}

TEST_F(CodeTest, FilesAreSortedAndChosen) {
  const Result<SourceFiles> all = read_source_files(folder_, "auto");
  ASSERT_TRUE(all.ok()) << all.error().message;
  EXPECT_EQ(all->files.size(), 31U);
  EXPECT_TRUE(all->text.starts_with("// File: f0.cpp\n  auto value_0 "));
  EXPECT_LT(all->text.find("f0.cpp"), all->text.find("f1.cpp"));
  EXPECT_LT(all->text.find("f10.cpp"), all->text.find("f2.cpp"));
  EXPECT_EQ(all->text.find("not to be read"), std::string::npos);
  EXPECT_EQ(read_source_files(folder_, "py")->files.size(), 1U);
}

TEST_F(CodeTest, Errors) {
  const auto message = [](const auto& result) { return result.ok() ? std::string() : result.error().message; };
  EXPECT_NE(message(make("code:ext=rs", 1000)).find("no source files (ext=rs)"), std::string::npos);
  EXPECT_NE(message(make("code:ext=py,lines=5", 1000)).find("lines=5"), std::string::npos);
  EXPECT_NE(message(read_source_files(folder_ + "/notes.txt", "auto")).find("is no folder"), std::string::npos);
  EXPECT_NE(message(read_source_files("", "auto")).find("no folder"), std::string::npos);
  EXPECT_NE(message((*make("code", 10'000'000))->sample(0)).find("larger folder"), std::string::npos);
  EXPECT_NE(message((*make("code", 2))->sample(0)).find("no room"), std::string::npos);
}

}  // namespace
}  // namespace kedge::eval
