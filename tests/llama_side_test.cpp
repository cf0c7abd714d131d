// libllama as a comparison uses it, against libllama as the other tests use it.
#include "llama_side/llama_side.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <cmath>
#include <vector>

#include "kedge/model.h"
#include "llama_side/quiet.h"
#include "support/oracle.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace kedge::llama_side {
namespace {

std::unique_ptr<LlamaSide> open(const LlamaOptions& options) {
  Result<std::unique_ptr<LlamaSide>> side = LlamaSide::open(options);
  EXPECT_TRUE(side.ok()) << (side.ok() ? "" : side.error().message);
  return side.ok() ? *std::move(side) : nullptr;
}

std::string tiny_model(const test::TempDir& folder) {
  const std::string path = folder.file("tiny.gguf");
  test::write_tiny_model(test::make_tiny_weights({}), path);
  return path;
}

double largest_difference(std::span<const float> a, std::span<const float> b) {
  double largest = a.size() == b.size() ? 0 : INFINITY;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i)
    largest = std::max(largest, std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return largest;
}

TEST(LlamaSide, SaysWhatTheOracleSays) {
  const test::TempDir folder;
  const std::string path = tiny_model(folder);
  const std::vector<int32_t> tokens = test::random_tokens(70, 3);
  const auto expected = test::Oracle(path).logits(tokens, 0, {.flash_attention = true, .kv_f16 = true});
  const auto side = open({.path = path, .n_threads = 2, .n_ctx = 128, .n_batch = 32, .n_ubatch = 16});
  ASSERT_NE(side, nullptr);
  EXPECT_EQ(side->n_vocab(), 320);
  EXPECT_TRUE(side->logits().empty());
  const std::span<const int32_t> all = tokens;

  const Result<double> seconds = side->append(all.first(40));  // two batches
  ASSERT_TRUE(seconds.ok());
  EXPECT_GT(*seconds, 0);
  EXPECT_LT(largest_difference(side->logits(), expected[39]), 1e-2);
  side->rest();
  std::vector<int64_t> seen;
  double worst = 0;
  const Status status = side->score(all.subspan(40), [&](int64_t index, std::span<const float> row) {
    seen.push_back(index);
    worst = std::max(worst, largest_difference(row, expected[static_cast<size_t>(40 + index)]));
  });
  ASSERT_TRUE(status.ok());
  ASSERT_EQ(seen.size(), 30U);
  EXPECT_EQ(seen.front(), 0);
  EXPECT_EQ(seen.back(), 29);
  EXPECT_LT(worst, 1e-2);
  EXPECT_EQ(side->n_tokens(), 70);

  side->truncate(20);
  EXPECT_EQ(side->n_tokens(), 20);
  ASSERT_TRUE(side->append(all.subspan(20, 5)).ok());
  EXPECT_LT(largest_difference(side->logits(), expected[24]), 1e-2);

  side->clear();
  EXPECT_EQ(side->n_tokens(), 0);
  ASSERT_TRUE(side->append(all.first(1)).ok());
  EXPECT_LT(largest_difference(side->logits(), expected[0]), 1e-2);
}

TEST(LlamaSide, GivesTheCallerItsCpusBack) {
  const test::TempDir folder;
  const std::string path = tiny_model(folder);
  cpu_set_t before, after;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  const auto side = open({.path = path, .n_threads = 1, .n_ctx = 64});
  ASSERT_NE(side, nullptr);
  const std::vector<int32_t> tokens = test::random_tokens(8, 1);
  side->rest();  // waking a paused pool pins too
  ASSERT_TRUE(side->append(tokens).ok());
  ASSERT_EQ(sched_getaffinity(0, sizeof(after), &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

TEST(LlamaSide, RestSendsThePoolToSleep) {
  const test::TempDir folder;
  const auto side = open({.path = tiny_model(folder), .n_threads = 2, .n_ctx = 64});
  ASSERT_NE(side, nullptr);
  ASSERT_TRUE(side->append(test::random_tokens(8, 1)).ok());
  side->rest();
  EXPECT_TRUE(wait_until_quiet(0.1));
}

TEST(LlamaSide, StopsWhenAsked) {
  const test::TempDir folder;
  bool stop = false;
  const auto side = open({.path = tiny_model(folder), .n_threads = 1, .n_ctx = 256, .stop = [&] { return stop; }});
  ASSERT_NE(side, nullptr);
  const std::vector<int32_t> tokens = test::random_tokens(200, 1);
  ASSERT_TRUE(side->append(tokens).ok());
  side->clear();
  stop = true;
  const Result<double> seconds = side->append(tokens);
  ASSERT_FALSE(seconds.ok());
  EXPECT_EQ(seconds.error().code, ErrorCode::cancelled);
}

TEST(LlamaSide, RefusesWhatItCannotDo) {
  const test::TempDir folder;
  const std::string path = tiny_model(folder);
  const auto code = [](const LlamaOptions& options) {
    const auto side = LlamaSide::open(options);
    return side.ok() ? std::string("opened") : std::to_string(static_cast<int>(side.error().code));
  };
  const auto is = [](ErrorCode c) { return std::to_string(static_cast<int>(c)); };
  EXPECT_EQ(code({.path = folder.file("none.gguf")}), is(ErrorCode::model_unreadable));
  EXPECT_EQ(code({.path = path, .kv_type = "q8_0"}), is(ErrorCode::usage));
  EXPECT_EQ(code({.path = path, .n_threads = -1}), is(ErrorCode::usage));
  EXPECT_EQ(code({.path = path, .n_batch = 0}), is(ErrorCode::usage));

  const auto side = open({.path = path, .n_threads = 1, .n_ctx = 256});
  ASSERT_NE(side, nullptr);
  const Result<double> seconds = side->append(test::random_tokens(side->n_ctx() + 1, 1));
  ASSERT_FALSE(seconds.ok());
  EXPECT_EQ(seconds.error().code, ErrorCode::context_too_long);
  EXPECT_EQ(side->n_tokens(), 0);
}

}  // namespace
}  // namespace kedge::llama_side
