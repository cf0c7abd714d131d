#include "console.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdio>

#include "signals.h"
#include "text_input.h"

namespace kedge::cli {
namespace {

// What `work` writes to standard error, which is no terminal here.
template <typename Work>
std::string stderr_of(const Work& work) {
  testing::internal::CaptureStderr();
  work();
  std::fflush(stderr);
  return testing::internal::GetCapturedStderr();
}

TEST(ExitCodes, OnePerKindOfMistake) {
  EXPECT_EQ(exit_code(ErrorCode::failed), 1);
  EXPECT_EQ(exit_code(ErrorCode::usage), 2);
  EXPECT_EQ(exit_code(ErrorCode::model_unreadable), 3);
  EXPECT_EQ(exit_code(ErrorCode::budget_impossible), 4);
  EXPECT_EQ(exit_code(ErrorCode::context_too_long), 1);
  EXPECT_EQ(exit_code(ErrorCode::in_use), 5);
  EXPECT_EQ(exit_code(ErrorCode::quality_below), 6);
  EXPECT_EQ(exit_code(ErrorCode::cancelled), 130);
}

TEST(Report, OneLineWhateverTheMessage) {
  int code = 0;
  const std::string written = stderr_of([&code] {
    ASSERT_TRUE(open_log(false, "").ok());
    code = report({.code = ErrorCode::budget_impossible, .message = "first {} line\nsecond %s line\n"});
  });
  EXPECT_EQ(written, "kedge: error: first {} line second %s line\n");
  EXPECT_EQ(code, 4);
}

TEST(Log, DetailsOnlyWhenVerbose) {
  const auto lines = [](bool verbose) {
    return stderr_of([verbose] {
      ASSERT_TRUE(open_log(verbose, "").ok());
      note("a note");
      detail("a detail");
    });
  };
  EXPECT_EQ(lines(false), "a note\n");
  EXPECT_EQ(lines(true), "a note\na detail\n");
}

TEST(Log, FileGetsEverything) {
  const std::string path = testing::TempDir() + "kedge_console_test.log";
  std::remove(path.c_str());
  const std::string written = stderr_of([&path] {
    ASSERT_TRUE(open_log(false, path).ok());
    detail("a detail");
    warn("a warning");
    ASSERT_TRUE(open_log(false, "").ok());
  });
  EXPECT_EQ(written, "kedge: warning: a warning\n");
  const std::string log = *read_text(path);
  EXPECT_NE(log.find("debug a detail\n"), std::string::npos) << log;
  EXPECT_NE(log.find("warning kedge: warning: a warning\n"), std::string::npos) << log;
  std::remove(path.c_str());
  EXPECT_FALSE(open_log(false, "/nonexistent/folder/log").ok());
}

std::string progress_of(const char* how, int64_t total, int64_t step) {
  return stderr_of([=] {
    Progress progress(how, "prompt");
    for (int64_t done = 0; done <= total; done += step)
      progress.update(done, total);
  });
}

TEST(ProgressLines, AutoIsPlainWithoutATerminal) {
  const std::string lines = progress_of("auto", 4096, 512);
  EXPECT_EQ(lines, progress_of("plain", 4096, 512));
  EXPECT_TRUE(lines.starts_with("prompt: 512 of 4096 tokens (12%)\n")) << lines;
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 7);
  EXPECT_EQ(lines.find('\r'), std::string::npos);
}

TEST(ProgressLines, AtMostOnePerTenth) {
  const std::string lines = progress_of("plain", 1000, 1);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 9);
}

TEST(ProgressLines, ShortPromptsAndNoneAreSilent) {
  EXPECT_EQ(progress_of("plain", 512, 64), "");
  EXPECT_EQ(progress_of("none", 4096, 512), "");
  EXPECT_EQ(progress_of("plain", 0, 1), "");
}

TEST(ProgressLines, Json) {
  EXPECT_EQ(progress_of("json", 2, 1),
            "{\"event\":\"prompt\",\"done\":0,\"total\":2}\n{\"event\":\"prompt\",\"done\":1,\"total\":2}\n"
            "{\"event\":\"prompt\",\"done\":2,\"total\":2}\n");
}

TEST(Signals, NothingAskedToStop) {
  EXPECT_FALSE(stop_requested());
  EXPECT_EQ(signal_exit_code(), 0);
}

TEST(Signals, TheFirstInterruptIsRememberedUntilForgotten) {
  install_signal_handlers();
  std::raise(SIGINT);
  EXPECT_TRUE(stop_requested());
  EXPECT_EQ(signal_exit_code(), 130);
  const Result<std::string> text = read_text("/dev/null");
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.error().code, ErrorCode::cancelled);
  forget_interrupt();
  EXPECT_FALSE(stop_requested());
}

TEST(SignalsDeathTest, TheSecondInterruptExits) {
  EXPECT_EXIT(
      {
        install_signal_handlers();
        std::raise(SIGINT);
        std::raise(SIGINT);
      },
      testing::ExitedWithCode(130), "");
}

}  // namespace
}  // namespace kedge::cli
