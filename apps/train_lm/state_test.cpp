#include "train_lm/state.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "support/temp_dir.h"

namespace kedge::lm {
namespace {

TrainState some_state() {
  return {.made_from = "hash",
          .step = 17,
          .parameters = {1, 2, 3},
          .first = {0.5F},
          .second = {0.25F, -0.0F},
          .inputs = {7},
          .best = {},
          .lora = {4, 5},
          .lora_first = {0.75F, 6},
          .lora_second = {},
          .best_lora = {8},
          .best_step = -1,
          .best_kld = 0.125,
          .start_kld = 0.5,
          .n_worse = 3,
          .is_over = true,
          .seconds = 12.5,
          .flops = 1e15,
          .n_tokens = 4096,
          .n_step_values = 2,
          .steps = {1, 0.5, 2, 0.25},
          .judgements = {0, 1, 2}};
}

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void put(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

TEST(TrainStateFile, ComesBackAsItWas) {
  const test::TempDir folder;
  const std::string path = folder.file("state.bin");
  ASSERT_TRUE(save_state(some_state(), path).ok());
  const Result<TrainState> back = read_state(path);
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(*back, some_state());
}

TEST(TrainStateFile, AnyDamageIsNamed) {
  const test::TempDir folder;
  const std::string path = folder.file("state.bin");
  ASSERT_TRUE(save_state(some_state(), path).ok());
  const std::string whole = content(path);
  for (size_t at = 0; at < whole.size(); at += 5) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    put(path, damaged);
    const Result<TrainState> read = read_state(path);
    ASSERT_FALSE(read.ok()) << "byte " << at;
    EXPECT_NE(read.error().message.find("state.bin"), std::string::npos);
  }
  for (size_t n = 0; n < whole.size(); n += 7) {
    put(path, whole.substr(0, n));
    EXPECT_FALSE(read_state(path).ok()) << n << " bytes";
  }
  EXPECT_FALSE(read_state(folder.file("none.bin")).ok());
}

}  // namespace
}  // namespace kedge::lm
