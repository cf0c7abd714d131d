// The program killed at any moment goes on to the same gate. KEDGE_KILLS: how often (4).
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "base/clock.h"
#include "train_lm/tiny_lesson.h"

namespace kedge::lm {
namespace {

namespace fs = std::filesystem;

pid_t start(const std::vector<std::string>& args) {
  std::vector<char*> argv = {const_cast<char*>(KEDGE_TRAIN_LM)};
  for (const std::string& arg : args)
    argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    const int null = open("/dev/null", O_WRONLY);
    dup2(null, STDERR_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
  return child;
}

int exit_of(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> arguments(const TinyLesson& lesson, const std::string& out) {
  return {"--stage",
          "lm",
          lesson.document("learn.txt"),
          lesson.document("judge.txt"),
          "-m",
          lesson.model(),
          "--held-out",
          "judge.txt",
          "--gate-out",
          lesson.folder.file(out),
          "--train-tokens",
          "6000",
          "--train-lengths",
          "192",
          "--gate-window",
          "16",
          "--gate-width",
          "8",
          "--lm-steps",
          "24",
          "--lm-save-every",
          "2",
          "--lm-judge-every",
          "6",
          "--lm-judge-windows",
          "2",
          "--lm-adversarial",
          "0.5",
          "-t",
          "1",
          "--progress",
          "none"};
}

TEST(KilledTraining, GoesOnToTheSameGate) {
  const TinyLesson lesson(3);
  const Stopwatch watch;
  ASSERT_EQ(exit_of(start(arguments(lesson, "whole"))), 0);
  const double whole_seconds = watch.seconds();
  const std::string whole = content(lesson.folder.file("whole") + "/gate-lm.gguf");
  ASSERT_GT(whole.size(), 1000U);

  const char* asked = std::getenv("KEDGE_KILLS");
  const int n_kills = asked == nullptr ? 4 : std::atoi(asked);
  eval::Random random(static_cast<uint64_t>(getpid()), "kills");
  const std::vector<std::string> args = arguments(lesson, "killed");
  int n_killed = 0;
  for (int i = 0; i < n_kills; ++i) {
    const pid_t child = start(args);
    // At any moment of a run, its start included.
    const double share = static_cast<double>(random.below(1000)) / 1000;
    std::this_thread::sleep_for(std::chrono::duration<double>(0.6 * share * whole_seconds));
    kill(child, SIGKILL);
    n_killed += exit_of(child) == -SIGKILL ? 1 : 0;
    if (fs::exists(lesson.folder.file("killed") + "/gate-lm.gguf")) {
      EXPECT_EQ(content(lesson.folder.file("killed") + "/gate-lm.gguf"), whole);
      fs::remove_all(lesson.folder.file("killed"));  // it came to its end: once more from the start
    }
  }
  EXPECT_GT(n_killed, 0);
  ASSERT_EQ(exit_of(start(args)), 0);
  EXPECT_EQ(content(lesson.folder.file("killed") + "/gate-lm.gguf"), whole);
}

TEST(InterruptedTraining, SavesAfterTheStepAndSaysSo) {
  const TinyLesson lesson;
  const std::string state = lesson.folder.file("out") + "/lm-state.bin";
  std::vector<std::string> args = arguments(lesson, "out");
  args.insert(args.end(), {"--lm-steps", "100000", "--lm-save-every", "100000", "--lm-judge-every", "100000"});
  const pid_t child = start(args);
  // Once the folder is there it reads weights, then trains; the handler is in place long before.
  const Stopwatch watch;
  while (!fs::exists(lesson.folder.file("out")) && watch.seconds() < 60)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  std::this_thread::sleep_for(std::chrono::seconds(1));
  EXPECT_FALSE(fs::exists(state));
  kill(child, SIGINT);
  EXPECT_EQ(exit_of(child), 130);
  EXPECT_TRUE(fs::exists(state));
  EXPECT_TRUE(fs::exists(lesson.folder.file("out") + "/lm-report.csv"));
}

}  // namespace
}  // namespace kedge::lm
